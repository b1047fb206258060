"""The keyed states of a step: looked into and changed by its batches."""

__all__: list[str] = []

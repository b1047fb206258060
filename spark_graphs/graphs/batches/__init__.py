"""The batches of a step: how far each goes, and its messages, pinned in their places."""

__all__: list[str] = []

"""The files of a store, as those need them who read and write messages beside its owner."""

__all__: list[str] = []

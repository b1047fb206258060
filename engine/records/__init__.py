"""The bytes of records and checkpoints."""

__all__: list[str] = []

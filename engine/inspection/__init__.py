"""Looking at an open store: its numbers, its check, a digest of its messages."""

__all__: list[str] = []

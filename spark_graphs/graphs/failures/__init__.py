"""Batches that fail: which of their messages are at fault, and where these go."""

__all__: list[str] = []

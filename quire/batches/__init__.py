"""Runs of messages out of many blocks: delivered, packed anew, moved, or as one Arrow batch."""

__all__: list[str] = []

"""Fragments: messages that the tasks of a sink write and hand to its commit."""

__all__: list[str] = []

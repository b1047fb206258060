"""Sinks: rows on their way into queues, and the one commit for them."""

__all__: list[str] = []

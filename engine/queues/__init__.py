"""Queues: records, space, subscriptions and prepared transactions, each queue under its lock."""

__all__: list[str] = []

"""Rows: the messages of typed queues, as blocks of columns."""

__all__: list[str] = []

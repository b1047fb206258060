"""Rows: the messages of typed queues, as blocks of columns."""

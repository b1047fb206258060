"""The state of an open store: queues, values and prepared transactions beside the fold."""

__all__: list[str] = []

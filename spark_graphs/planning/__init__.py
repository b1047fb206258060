"""The plan of a read, in the driver: which queues, how far, held by whom."""

__all__: list[str] = []

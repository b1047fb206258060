"""What a read is planned with, in the driver: which queues, how far, held by whom."""

__all__: list[str] = []

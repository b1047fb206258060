"""The write buffer: where the messages of open transactions wait, by transaction and queue."""

from .buffer import QueueBuffer, TransactionBuffer, WriteBuffer

__all__ = ["QueueBuffer", "TransactionBuffer", "WriteBuffer"]

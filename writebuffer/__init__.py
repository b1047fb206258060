"""The write buffer: where the messages of open transactions wait, by transaction and queue."""

from .buffer import Account, QueueBuffer, TransactionBuffer, WriteBuffer, WriteBuffers

__all__ = ["Account", "QueueBuffer", "TransactionBuffer", "WriteBuffer", "WriteBuffers"]

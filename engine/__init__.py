"""The queue manager: queues, transactions, subscriptions, space, recovery."""

from .direct_read import PieceReader
from .info import (
    CatalogItem,
    Lease,
    Piece,
    PreparedInfo,
    QueueInfo,
    QueueRecord,
    Report,
    SubscriptionInfo,
    TransactionInfo,
)
from .message_id import MessageId, MessageIds
from .options import Options
from .store import EmbeddedStore
from .transaction import EmbeddedTransaction, TransactionState

__all__ = [
    "CatalogItem",
    "EmbeddedStore",
    "EmbeddedTransaction",
    "Lease",
    "MessageId",
    "MessageIds",
    "Options",
    "Piece",
    "PieceReader",
    "PreparedInfo",
    "QueueInfo",
    "QueueRecord",
    "Report",
    "SubscriptionInfo",
    "TransactionInfo",
    "TransactionState",
]

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
from .store import Store
from .transaction import Transaction, TransactionState

__all__ = [
    "CatalogItem",
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
    "Store",
    "SubscriptionInfo",
    "Transaction",
    "TransactionInfo",
    "TransactionState",
]

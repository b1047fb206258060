"""The queue manager: queues, transactions, subscriptions, space, recovery."""

from quire.engine.reading.direct_read import PieceReader
from quire.engine.transactions.message_id import MessageId, MessageIds
from quire.engine.transactions.transaction import EmbeddedTransaction, TransactionState

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
from .options import Options
from .store import EmbeddedStore

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

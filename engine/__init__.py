"""The queue manager: queues, transactions, subscriptions, space, recovery."""

from .direct_read import PieceReader
from .info import Lease, Piece, QueueInfo, Report, SubscriptionInfo
from .message_id import MessageId, MessageIds
from .options import Options
from .store import Store
from .transaction import Transaction

__all__ = [
    "Lease",
    "MessageId",
    "MessageIds",
    "Options",
    "Piece",
    "PieceReader",
    "QueueInfo",
    "Report",
    "Store",
    "SubscriptionInfo",
    "Transaction",
]

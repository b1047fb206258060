"""The queue manager: queues, transactions, subscriptions, space, recovery."""

from .direct_read import PieceReader
from .info import Lease, Piece, PreparedInfo, QueueInfo, Report, SubscriptionInfo
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
    "PreparedInfo",
    "QueueInfo",
    "Report",
    "Store",
    "SubscriptionInfo",
    "Transaction",
]

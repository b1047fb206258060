"""The queue manager: queues, transactions, subscriptions, space, recovery."""

from quire.engine.reading.direct_read import PieceReader
from quire.engine.transactions.transaction import EmbeddedTransaction

from .options import Options
from .store import EmbeddedStore

__all__ = ["EmbeddedStore", "EmbeddedTransaction", "Options", "PieceReader"]

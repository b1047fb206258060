"""The queue manager: queues, transactions, subscriptions, space, recovery.

Its names are imported when they are asked for: who joins a store needs little of it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire.engine.reading.direct_read import PieceReader
    from quire.engine.transactions.transaction import EmbeddedTransaction

    from .options import Options
    from .store import EmbeddedStore
else:
    from quire.libraries.late_modules import names_of

    __getattr__ = names_of(
        globals(),
        {
            "EmbeddedStore": "quire.engine.store",
            "EmbeddedTransaction": "quire.engine.transactions.transaction",
            "Options": "quire.engine.options",
            "PieceReader": "quire.engine.reading.direct_read",
        },
    )

__all__ = ["EmbeddedStore", "EmbeddedTransaction", "Options", "PieceReader"]

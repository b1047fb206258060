"""The calls of a store itself that are made by their rows, for each store that is elsewhere.

The store object behind makes them: a joined one asks its owner, one that lives on asks whichever
owner there is.
"""

from __future__ import annotations

from quire.calls.call_table import by_row
from quire.calls.documented import documented_by
from quire.interface.redriving import Redrives
from quire.interface.store import Store
from quire.interface.store_objects import StoreObject


@documented_by(Store)
class MadeStore(StoreObject):
    """For a class that makes calls by their rows."""

    alter_queue = by_row(Store.alter_queue)
    drop_queue = by_row(Store.drop_queue)
    queues = by_row(Store.queues)
    subscriptions = by_row(Store.subscriptions)
    unsubscribe = by_row(Store.unsubscribe)
    sync = by_row(Store.sync)
    browse = by_row(Store.browse)
    status = by_row(Store.status)
    put_back = by_row(Redrives.put_back)

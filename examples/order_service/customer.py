"""A customer who waits for the receipt of each order, and goes on after any crash.

Each order is a request of a session: it is put once, and its receipt is taken once, in the
transaction that keeps it. Begun again after a kill, the customer asks how far each order is.
"""

from __future__ import annotations

import quire

from .orders import CustomerOrder
from .queues import USUAL

LOST = (quire.ConnectionLost, quire.OutcomeUnknown, quire.TransactionError)


def buy(store: quire.Store, name: str, count: int) -> None:
    """Have so many orders in all, by this and earlier runs, each with its receipt in "receipts"."""
    session = store.session(name)
    while True:
        try:
            if not _go_on(session, count):
                return
        except quire.SessionFenced:
            raise  # somebody else is this customer now
        except LOST:
            continue  # the store has another owner: look how far it came


def _go_on(session: quire.Session, count: int) -> bool:
    info = session.info()
    for number in info.unfinished:
        if session.resolve(number) == quire.RequestState.NOT_PUT:
            session.submit(number)
        with session.transaction() as txn:
            reply = session.take(number, timeout=60.0, txn=txn)
            if reply is not None:
                text = reply.payload if reply.error is None else f"{number}: refused".encode()
                txn.put("receipts", text)
    if info.last_begun < count:
        payload, content_type = CustomerOrder(info.last_begun + 1, "apples", 500).encode()
        session.begin("orders", payload, content_type=content_type, priority=USUAL)
        return True
    return bool(info.unfinished)

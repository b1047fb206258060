"""The steps of an order: each is one transaction over all its queues.

A step that fails, or whose process dies, has done nothing: its message is there again, and what it
had put is not. So every order is charged, packed and invoiced once, whatever is killed meanwhile.
"""

from __future__ import annotations

import os
import signal
import time

import quire

from .bank import Busy, charge
from .orders import read

INVOICE_AFTER_SECONDS = 1.0
RETRY_SECONDS = 0.05  # the first time; twice as long each time


def workers(store: quire.Store) -> quire.Workers:
    """The handlers of all steps; `run` handles messages until the process is told to end."""
    found = quire.Workers(store)

    @found.on("orders", concurrency=2)
    def pay(message: quire.Message, txn: quire.Transaction) -> None:
        try:
            order = read(message)
        except (quire.PayloadInvalid, TypeError) as error:
            txn.reject(message, f"no order: {error}")
            return
        if order.item == "dynamite":  # stands for a fault that ends the process
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            receipt = charge(order, attempt=message.delivery_count)
        except Busy as busy:
            delay = RETRY_SECONDS * 2 ** (message.delivery_count - 1)
            txn.reject(message, str(busy), delay=delay)
            return
        payload, content_type = order.encode()
        txn.put("charges", receipt)
        if message.reply_to is not None:  # its customer waits
            quire.put_reply(txn, message, receipt)
        txn.put("paid", payload, content_type=content_type)

    @found.on("paid/shipping")
    def pack(message: quire.Message, txn: quire.Transaction) -> None:
        order = read(message)
        txn.put("parcels", f"{order.number}: {order.item}".encode())

    @found.on("paid/invoicing")
    def invoice(message: quire.Message, txn: quire.Transaction) -> None:
        order = read(message)
        due = time.time_ns() // 1000 + int(INVOICE_AFTER_SECONDS * 1e6)
        text = f"{order.number}: {order.cents / 100:.2f}"
        txn.put("invoices", text.encode(), deliver_at=due)

    @found.on("invoices")
    def mail(message: quire.Message, txn: quire.Transaction) -> None:
        txn.put("mailed", message.payload)

    return found

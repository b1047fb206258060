"""Stands for the bank: it is busy at times, and says so.

A real one is another system, which no transaction of the store covers. It has to know an order
again that it has charged, by its number, as most do; then a charge may be asked for twice.
"""

from __future__ import annotations

from .orders import CustomerOrder

BUSY = 3  # every third order finds it busy, twice


class Busy(Exception):
    """Try again later."""


def charge(order: CustomerOrder, attempt: int) -> bytes:
    """Take the money; a receipt. Raises Busy."""
    if order.number % BUSY == 0 and attempt <= 2:
        raise Busy(f"busy at attempt {attempt}")
    return f"{order.number}: {order.cents}".encode()

"""What a process registers, as it was before a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quire.definitions import order_code


def order_codes() -> Iterator[dict[str, Any]]:
    """The codes that order messages: a fixture. What a test registers is forgotten."""
    before = dict(order_code._registered)
    yield order_code._registered
    order_code._registered.clear()
    order_code._registered.update(before)

"""The order in which a queue hands out its messages: what its option `order` may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Required, TypedDict, cast

from quire.errors import InvalidArgument
from quire.limits import (
    DEFAULT_SEQUENCE_HELD,
    DEFAULT_SEQUENCE_SECONDS,
    MAX_DELAY_SECONDS,
    MAX_SEQUENCE_HELD,
    MAX_STRING_BYTES,
)


class AttributeOrder(TypedDict, total=False):
    """An order by the value of an attribute, the lowest first, and then in commit order."""

    attribute: Required[str]
    """The attribute's name. Messages without it come last."""
    numeric: bool
    """True if values are compared as numbers, and what is none counts as missing. Else (the
    default) they are compared as texts, by their first 64 bytes in UTF-8."""


class SequenceOrder(TypedDict, total=False):
    """Messages of one `sender` by the number that it gives each, which begins at 1 and grows by 1.

    A message waits for those of lower numbers. Messages without a number wait for nothing, and
    those of different senders come in commit order.
    """

    sequence: Required[str]
    """The attribute with the number, a whole one from 0 to 2**63 - 1."""
    wait: float
    """Seconds after its commit that a message waits, at most: 0 to 366 days; 5 by default. Then it
    is handed out, with the attribute "quire.missing", which tells how many numbers are missing."""
    most: int
    """The number of messages of one sender that wait, at most: 1 to 10,000; 1,000 by default. If
    there are more, the one of the lowest number is handed out so."""


Order = str | AttributeOrder | SequenceOrder
"""A value of `order`: "commit", "priority", the name of a registered code, or one of these."""

COMMIT: Final = "commit"
PRIORITY: Final = "priority"
BUILT_IN: Final = (COMMIT, PRIORITY)


def check_order(name: str, value: object) -> str | dict[str, Any]:
    """An order with all of its fields. Raises InvalidArgument."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        for form, check in ((AttributeOrder, _by_attribute), (SequenceOrder, _by_sequence)):
            fields = list(form.__annotations__)
            if fields[0] in value and set(value) <= set(fields):
                if not isinstance(value[fields[0]], str) or not _fits(value[fields[0]]):
                    raise InvalidArgument(
                        f"{name}: {fields[0]} {value[fields[0]]!r:.100}: give the name of an "
                        f"attribute, of up to {MAX_STRING_BYTES} bytes"
                    )
                return check(name, value)
    raise InvalidArgument(
        f"{name} {value!r:.100}: give {COMMIT!r}, {PRIORITY!r}, the name of a registered code, "
        f"{{'attribute': NAME, 'numeric': BOOL}} or {{'sequence': NAME, 'wait': SECONDS, "
        "'most': NUMBER}"
    )


def _fits(text: str) -> bool:
    try:
        return 0 < len(text.encode()) <= MAX_STRING_BYTES
    except UnicodeEncodeError:
        return False


def _by_attribute(name: str, value: Mapping[str, object]) -> dict[str, Any]:
    order = {"numeric": False, **value}
    if not isinstance(order["numeric"], bool):
        raise InvalidArgument(f"{name}: numeric {order['numeric']!r:.100}: give True or False")
    return order


def _by_sequence(name: str, value: Mapping[str, object]) -> dict[str, Any]:
    order = {"wait": DEFAULT_SEQUENCE_SECONDS, "most": DEFAULT_SEQUENCE_HELD, **value}
    wait, most = order["wait"], order["most"]
    is_number = isinstance(wait, (int, float)) and not isinstance(wait, bool)
    if not is_number or not 0 <= cast(float, wait) <= MAX_DELAY_SECONDS:
        raise InvalidArgument(
            f"{name}: wait {wait!r:.100}: give seconds from 0 to {MAX_DELAY_SECONDS}"
        )
    is_count = isinstance(most, int) and not isinstance(most, bool)
    if not is_count or not 1 <= cast(int, most) <= MAX_SEQUENCE_HELD:
        raise InvalidArgument(
            f"{name}: most {most!r:.100}: give an int from 1 to {MAX_SEQUENCE_HELD}"
        )
    return {**order, "wait": float(cast(float, wait))}


def by_sequence(order: object) -> bool:
    """Return True if it is the order of a sender's sequence."""
    return isinstance(order, Mapping) and "sequence" in order


def sequence_of(order: object) -> str:
    """The attribute with the numbers of that; empty: it is another order."""
    return str(order["sequence"]) if isinstance(order, Mapping) and "sequence" in order else ""


def by_key(order: object) -> bool:
    """Return True if messages that follow each other in it may be anywhere in commit order."""
    return order not in BUILT_IN and not by_sequence(order)


def by_code(order: object) -> bool:
    """Return True if it is a registered code's."""
    return isinstance(order, str) and order not in BUILT_IN

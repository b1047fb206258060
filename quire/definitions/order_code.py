"""Code that orders messages: registered by name, and named by a queue's option `order`.

It is a function of the headers of some messages: a pyarrow RecordBatch of `quire.HEADER_SCHEMA`
(the columns of `MESSAGE_SCHEMA` but for the payload and the count of deliveries). It returns a key
for each row, as a numpy array (or what makes one): of whole numbers, floats or times. The message
of the lowest key is handed out first, those of equal keys in commit order, those whose key is NaN,
NaT or None last. It is named by an entry point of the group "quire.orders", or given to
`register_order` before the store is opened:

    [project.entry-points."quire.orders"]
    by_age = "my_package:by_age"

A key must depend on nothing but its row: it is asked for once while the message waits, and again
after a restart. The code has to be where the store's owner runs: every process that may become the
owner. An owner without it goes on with all other queues; those of this order refuse puts and gets
with QueueDisabled, which names the code, and keep what they hold. What the code raises stops its
queue in the same way, until the order is altered or the store is opened again.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, cast

from quire.callbacks import check_function, from_entry_point
from quire.errors import InvalidArgument
from quire.libraries import pa

from .order import BUILT_IN
from .properties import NAME

GROUP: Final = "quire.orders"


class OrderCode(Protocol):
    """A function that orders messages: see `quire.definitions.order_code`."""

    def __call__(self, headers: pa.RecordBatch) -> Any:
        """The keys of the rows. It must not use the store."""


_registered: Final[dict[str, OrderCode]] = {}


def register_order(name: str, code: OrderCode) -> None:
    """Let queues be ordered by a code, in this process; instead of one of that name from before.

    Raises InvalidArgument for a name that cannot be one, or is built in, and for what is no code.
    """
    if not isinstance(name, str) or NAME.fullmatch(name) is None or name in BUILT_IN:
        raise InvalidArgument(f"order {name!r:.100}: give another name")
    _registered[name] = _checked(name, code)


def order_named(name: str) -> OrderCode:
    """Registered, or of an entry point. Raises InvalidArgument, in words for a user."""
    known = _registered.get(name)
    if known is not None:
        return known
    made = from_entry_point(GROUP, "order", name)
    if made is not None:
        return _registered.setdefault(name, _checked(name, made))
    raise InvalidArgument(
        f"order {name!r} is not known to the process that owns the store: install the package "
        f"that has it (entry point group {GROUP}), or call quire.register_order, before the store "
        f"is opened; built in are {', '.join(map(repr, BUILT_IN))}"
    )


def _checked(name: str, made: object) -> OrderCode:
    function = check_function(f"order {name!r},", made, "it needs to be a function of headers")
    return cast(OrderCode, function)

"""Queue types: how the messages of a queue are kept. Two are built in, others are registered.

"persistent" queues keep their messages in the journal and the data files, "volatile" ones in the
memory of the process that owns the store. A further type is an object with what `QueueType` says,
named by an entry point of the group "quire.queue_types", or given to `register_type` before the
store is opened:

    [project.entry-points."quire.queue_types"]
    metered = "my_package:Metered"

The code has to be where the store's owner runs: every process that may become the owner. An owner
without it goes on with all other queues; this one refuses puts and gets with QueueDisabled, which
names the type, and keeps what it holds.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from quire.callbacks import check_function, from_entry_point
from quire.errors import InvalidArgument
from quire.reports.info import QueueInfo

from .properties import NAME, PERSISTENT, VOLATILE

GROUP: Final = "quire.queue_types"


class QueueType(Protocol):
    """A type of queues: an object, of a class without arguments where it has one."""

    @property
    def is_volatile(self) -> bool:
        """True if messages are in the owner's memory only, and gone when it ends.

        What it says when a queue is made holds for as long as there is the queue.
        """

    def start(self, queue: QueueInfo) -> None:
        """The queue comes into use: the store was opened by this process, or the queue just made.

        It must not use the store, and opening it waits for it. What it raises stops the queue: puts
        and gets raise QueueDisabled, with the words of the error.
        """

    def stop(self, queue: QueueInfo) -> None:
        """The queue was dropped, or the store is being closed; not after a crash."""


class BuiltIn(NamedTuple):
    """A type for which nothing is to be started."""

    is_volatile: bool

    def start(self, queue: QueueInfo) -> None:
        """Do nothing."""

    def stop(self, queue: QueueInfo) -> None:
        """Do nothing."""


BUILT_IN: Final = {PERSISTENT: BuiltIn(is_volatile=False), VOLATILE: BuiltIn(is_volatile=True)}
_registered: Final[dict[str, QueueType]] = {}


def register_type(name: str, type: QueueType) -> None:
    """Let queues be made of a type, in this process; instead of one of that name from before.

    Stores that are open go on as they are. Raises InvalidArgument for a name that cannot be one, or
    is built in, and for what is no type.
    """
    if not isinstance(name, str) or NAME.fullmatch(name) is None or name in BUILT_IN:
        raise InvalidArgument(f"queue type {name!r:.100}: give another name")
    _registered[name] = _checked(name, type)


def type_named(name: str) -> QueueType:
    """Built in, registered, or of an entry point. Raises InvalidArgument, in words for a user."""
    known = BUILT_IN.get(name) or _registered.get(name)
    if known is not None:
        return known
    made = from_entry_point(GROUP, "queue type", name)
    if made is not None:
        return _registered.setdefault(name, _checked(name, made))
    raise InvalidArgument(
        f"queue type {name!r} is not known to the process that owns the store: install the package "
        f"that has it (entry point group {GROUP}), or call quire.register_type, before the store "
        f"is opened; built in are {PERSISTENT!r} and {VOLATILE!r}"
    )


def _checked(name: str, made: object) -> QueueType:
    needs = "it needs is_volatile (True or False), start(queue) and stop(queue)"
    if not isinstance(getattr(made, "is_volatile", None), bool):
        raise InvalidArgument(f"queue type {name!r} is {made!r:.100}: {needs}")
    for method in ("start", "stop"):
        check_function(f"queue type {name!r}, {method}", getattr(made, method, None), needs)
    return made  # type: ignore[return-value]

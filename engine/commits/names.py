"""What queues are called: renaming them, and their aliases.

- NA1: a name means one queue. A queue's name and an alias are refused where the other is there, and
  what is renamed has no name in between that somebody else could take.
- NA2: an alias is of the queue, not of its name: it follows when the queue is renamed. The property
  `dead_letter` of other queues is a name, and is changed by the same record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from quire.engine.queues.queue import Queue
from quire.engine.queues.state import State
from quire.engine.records.catalog import ALIAS, QUEUE, CatalogChange
from quire.errors import InvalidArgument, QueueExists, QueueInUse
from quire.limits import MAX_CATALOG_ENTRY_BYTES, MAX_QUEUE_ENTRY_BYTES
from quire.properties import Properties
from quire.row_schema import is_part


class Submit(Protocol):
    """See `Definitions.submit`."""

    def __call__(
        self,
        entry_bytes: int,
        prepare: Callable[[], list[CatalogChange]],
        *,
        is_temporary: Callable[[], bool] = ...,
    ) -> None: ...


class Names:
    """See the module. Thread-safe."""

    def __init__(self, state: State, submit: Submit) -> None:
        self._state = state
        self._submit = submit

    def rename(self, old: str, new: str) -> Queue:
        """Give a queue another name. Raises as `Store.rename_queue`."""
        state = self._state
        renamed: list[Queue] = []

        def prepare() -> list[CatalogChange]:
            queue = named_itself(state, old)
            if new in state.names:
                raise there_already(state, new)
            renamed.append(queue)
            return [
                _altered(state, queue, name=new),
                *(_altered(state, other, dead_letter=new) for other in _feeding(state, old)),
            ]

        def is_temporary() -> bool:
            concerned = [q for q in (state.names.get(old), *_feeding(state, old)) if q is not None]
            return bool(concerned) and all(queue.is_temporary for queue in concerned)

        most_bytes = (2 + len(_feeding(state, old))) * MAX_QUEUE_ENTRY_BYTES
        self._submit(most_bytes, prepare, is_temporary=is_temporary)
        return renamed[0]

    def create_alias(self, name: str, queue: str, replace: bool) -> None:
        """Give a queue one more name. Raises as `Store.create_alias`."""
        state = self._state

        def prepare() -> list[CatalogChange]:
            target = state.queue(queue)
            if target.is_temporary:
                raise InvalidArgument(
                    f"queue {target.name!r} is not there after a restart (persistent=False), and "
                    "an alias would be: it cannot have one"
                )
            number = state.durable.next_queue_id
            if name in state.names:
                known = alias_number(state, name)
                if known is None or not replace:
                    raise there_already(state, name)
                number = known
            for other in _feeding(state, name):
                if other is target:
                    raise InvalidArgument(
                        f"alias {name!r} is where the dead letters of {target.name!r} go: another "
                        "queue must take them"
                    )
                properties = other.config.properties
                check_letters(other.name, properties, target.schema)
            return [CatalogChange(ALIAS, number, {"name": name, "queue_id": target.queue_id})]

        self._submit(MAX_CATALOG_ENTRY_BYTES, prepare)

    def drop_alias(self, name: str) -> None:
        """Take an alias away. Raises as `Store.drop_alias`."""
        state = self._state

        def prepare() -> list[CatalogChange]:
            state.queue(name)
            number = alias_number(state, name)
            if number is None:
                raise InvalidArgument(
                    f"{name!r} is the name of a queue, not an alias: rename_queue and drop_queue "
                    "are for queues"
                )
            check_no_dead_letters(state, name)
            return [CatalogChange(ALIAS, number, None)]

        self._submit(MAX_CATALOG_ENTRY_BYTES, prepare)

    def aliases(self) -> dict[str, str]:
        """The aliases in the order of their names, each with its queue's name."""
        state = self._state
        entries = [entry.body for entry in list(state.durable.catalog.get(ALIAS, {}).values())]
        pairs = [(str(body["name"]), state.queues.get(body["queue_id"])) for body in entries]
        return {name: queue.name for name, queue in sorted(pairs, key=_first) if queue is not None}


def _first(pair: tuple[str, object]) -> str:
    return pair[0]


def named_itself(state: State, name: str) -> Queue:
    """The queue of this name, which must not be an alias: it is to be renamed or dropped."""
    queue = state.queue(name)
    if queue.name != name:
        raise InvalidArgument(
            f"{name!r} is an alias of queue {queue.name!r}: give that name, or drop_alias({name!r})"
        )
    return queue


def there_already(state: State, name: str) -> QueueExists:
    """A name that is to be given is taken."""
    queue = state.names.get(name)
    if queue is None or queue.name == name:
        return QueueExists(f"queue {name!r} is there already: use it, or drop_queue it first")
    return QueueExists(
        f"{name!r} is an alias of queue {queue.name!r}: use another name, or drop_alias it first"
    )


def alias_number(state: State, name: str) -> int | None:
    """The number of an alias' entry; None: there is no such alias."""
    for number, entry in state.durable.catalog.get(ALIAS, {}).items():
        if entry.body["name"] == name:
            return number
    return None


def check_no_dead_letters(state: State, name: str) -> None:
    """Raises QueueInUse where dead letters of other queues go to the name."""
    for other in _feeding(state, name):
        raise QueueInUse(
            f"queue {name!r} is the dead-letter queue of {other.name!r}: alter that first "
            "(alter_queue)"
        )


def check_letters(name: str, properties: Properties, theirs: str | None) -> None:
    """Its dead-letter queue, of this schema, must take its messages. Raises InvalidArgument."""
    own, target = properties.schema, properties.dead_letter
    if theirs is not None and (own is None or not is_part(own, theirs)):
        raise InvalidArgument(
            f"queue {name!r}: its dead-letter queue {target!r} has other columns ({theirs:.200}): "
            "give one with the same columns, to which nullable ones may be added, or one of bytes"
        )


def check_no_alias(state: State, queue: Queue) -> None:
    """Raises QueueInUse where the queue has aliases."""
    for entry in state.durable.catalog.get(ALIAS, {}).values():
        if entry.body["queue_id"] == queue.queue_id:
            raise QueueInUse(
                f"queue {queue.name!r} has the alias {entry.body['name']!r}: drop_alias it, or "
                "give it to another queue (create_alias with replace=True)"
            )


def _feeding(state: State, name: str) -> list[Queue]:
    """The queues whose dead letters go to this name."""
    return [q for q in list(state.ruled) if q.config.properties.dead_letter == name]


def _altered(state: State, queue: Queue, **fields: str) -> CatalogChange:
    body = {**state.described(queue).catalog[QUEUE][queue.queue_id].body, **fields}
    return CatalogChange(QUEUE, queue.queue_id, body)

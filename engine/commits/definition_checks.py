"""Checks of definitions, and of names in the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from quire.arguments import NewQueue
from quire.definitions.order import by_code
from quire.definitions.order_code import order_named
from quire.definitions.properties import (
    DEAD_LETTER,
    DEFAULT,
    GIVING_WAY,
    Properties,
    priority_of_puts,
)
from quire.definitions.row_schema import is_part, schema_of_words
from quire.engine.live_state.engine_state import EngineState
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.state.catalog import ALIAS, QUEUE, SCHEDULE, CatalogChange
from quire.engine.state.durable_state import TOPIC, WORK, CatalogEntry, SubscriptionForm
from quire.errors import InvalidArgument, QueueExists, QueueInUse, QueueNotFound, SubscriptionExists
from quire.libraries import pa
from quire.libraries.late_modules import stand_in
from quire.messages.encoded_values import check_codec

if TYPE_CHECKING:
    from quire.interface.sessions import session_opening
    from quire.selectors import condition as conditions
else:
    session_opening = stand_in("quire.interface.sessions.session_opening")  # with the first drop
    conditions = stand_in("quire.selectors.condition")  # with the first selector


def entries_by_name(state: EngineState, type: str) -> list[tuple[int, CatalogEntry]]:
    """All durable entries of a type with their numbers, in the order of their names."""
    entries = list(state.durable.catalog.get(type, {}).items())
    return sorted(entries, key=lambda pair: str(pair[1].body["name"]))


def entry_named(state: EngineState, type: str, name: str) -> tuple[int, CatalogEntry] | None:
    """The number and the entry of a name; None: there is none of the type."""
    for number, entry in list(state.durable.catalog.get(type, {}).items()):
        if entry.body["name"] == name:
            return number, entry
    return None


def named_itself(state: EngineState, name: str) -> Queue:
    """The queue of this name, which must not be an alias: it is to be renamed or dropped."""
    queue = state.queue(name, to_end=True)
    if queue.name != name:
        raise InvalidArgument(
            f"{name!r} is an alias of queue {queue.name!r}: give that name, or "
            f"store.admin.drop_alias({name!r})"
        )
    return queue


def there_already(state: EngineState, name: str, *, made: bool = False) -> QueueExists:
    """A name that is to be given, or a queue that is to be `made` with it, is there."""
    queue = state.names.get(name)
    if queue is None or queue.name == name:
        way = "create_queue with exist_ok=True is fine with that" if made else "use another name"
        return QueueExists(f"queue {name!r} is there already: {way}, or drop_queue it first")
    return QueueExists(
        f"{name!r} is an alias of queue {queue.name!r}: use another name, or drop it first "
        "(store.admin.drop_alias)"
    )


def check_no_dead_letters(state: EngineState, name: str) -> None:
    """Raises QueueInUse where dead letters of other queues go to the name."""
    for other in feeding(state, name):
        raise QueueInUse(
            f"queue {name!r} is the dead-letter queue of {other.name!r}: alter that first "
            "(alter_queue)"
        )


def check_no_replies(state: EngineState, name: str) -> None:
    """Raises QueueInUse where replies to a session come to the name (OP1)."""
    session = session_opening.session_with_replies(_sessions(state), name)
    if session is not None:
        raise QueueInUse(
            f"queue {name!r} takes the replies of session {session!r}: remove that first "
            f"(store.session({session!r}).remove())"
        )


def _sessions(state: EngineState) -> dict[str, bytes]:
    return state.values.items(session_opening.SESSIONS)


def check_no_session(state: EngineState, name: str) -> None:
    """Raises InvalidArgument where the state of the name is a session's (OP1)."""
    session = session_opening.session_with_state(_sessions(state), name)
    if session is not None:
        raise InvalidArgument(
            f"state {name!r} keeps the requests of session {session!r}: remove that instead "
            f"(store.session({session!r}).remove())"
        )


def check_letters(name: str, properties: Properties, theirs: str | None) -> None:
    """Its dead-letter queue, of the schema `theirs`, must take its messages.

    Raises InvalidArgument.
    """
    own, target = properties.schema, properties.dead_letter
    if theirs is not None and (own is None or not is_part(own, theirs)):
        raise InvalidArgument(
            f"queue {name!r}: its dead-letter queue {target!r} has other columns ({theirs:.200}): "
            "give one with the same columns, to which nullable ones may be added, or one of bytes"
        )


def check_verifiable(state: EngineState, queue: Queue) -> None:
    """Check that nothing puts messages of any sender to a queue whose senders are to be verified.

    Raises InvalidArgument.
    """
    for other in list(state.ruled):
        letters = other.config.properties
        goes_there = state.names.get(letters.dead_letter or "") is queue
        if goes_there and not letters.verified_sender:
            raise InvalidArgument(
                f"queue {queue.name!r}: dead letters of queue {other.name!r} come here, with any "
                f"sender: alter_queue({other.name!r}, verified_sender=True) first"
            )
    for _, entry in entries_by_name(state, SCHEDULE):
        if entry.body["queue_id"] == queue.queue_id and entry.body.get("sender") is not None:
            raise InvalidArgument(
                f"queue {queue.name!r}: schedule {entry.body['name']!r} puts as "
                f"{entry.body['sender']!r}: drop it (store.cron.drop), and make it again then"
            )


def feeding(state: EngineState, name: str) -> list[Queue]:
    """The queues whose dead letters go to this name."""
    return [q for q in list(state.ruled) if q.config.properties.dead_letter == name]


def entry_of(state: EngineState, queue: Queue) -> dict[str, Any]:
    """Return a copy of the queue's entry in the catalog, to be changed."""
    return dict(state.described(queue).catalog[QUEUE][queue.queue_id].body)


def altered(state: EngineState, queue: Queue, **fields: Any) -> CatalogChange:
    """The queue's entry, with other values of these."""
    return CatalogChange(QUEUE, queue.queue_id, entry_of(state, queue) | fields)


def check_stays(queue: Queue, what: str) -> None:
    """Raises InvalidArgument where something durable is to be of a temporary queue."""
    if queue.is_temporary:
        raise InvalidArgument(
            f"queue {queue.name!r} is not there after a restart (persistent=False), and {what} "
            "would be: it cannot have one"
        )


def check_unnamed(state: EngineState, queue: Queue) -> None:
    """Raises QueueInUse where an alias or a schedule is of the queue."""
    remedies = {
        ALIAS: "drop it (store.admin.drop_alias), or give it to another queue "
        "(store.admin.create_alias with replace=True)",
        SCHEDULE: "drop it (store.cron.drop), or give it another queue (store.cron.alter)",
    }
    for type, remedy in remedies.items():
        for entry in state.durable.catalog.get(type, {}).values():
            if entry.body["queue_id"] == queue.queue_id:
                raise QueueInUse(
                    f"queue {queue.name!r} has the {type} {entry.body['name']!r}: {remedy}"
                )


def check_queue(
    state: EngineState,
    queue: NewQueue,
    made: Mapping[str, Properties] = MappingProxyType({}),
    *,
    is_volatile: bool,
    before: Properties | None = None,
) -> None:
    """Check a queue's definition, at its making or after (`before`). Raises InvalidArgument.

    `made`: of the queues that are made with it. Raises QueueNotFound where its dead-letter queue
    is none of these.
    """
    name, properties = queue.name, queue.properties
    order, target = properties.order, properties.dead_letter
    if isinstance(order, str) and by_code(order) and (before is None or before.order != order):
        order_named(order)
    if properties.codec is not None and (before is None or before.codec != properties.codec):
        check_codec(name, properties.codec)
    if is_volatile and properties.most_requests:
        raise InvalidArgument(
            f"queue {name!r} is volatile: what was put to it would be forgotten with its request "
            "ids; leave dedup_count and dedup_seconds out, or give a durable type"
        )
    _check_indexed(name, "indexed", properties.indexed, properties.schema)
    _check_kept(name, properties)
    _check_effect(queue, DEFAULT if before is None else before)
    if properties.keeps and queue.kind != TOPIC:
        raise InvalidArgument(
            f"queue {name!r} is a work queue, from which a message goes when it is read: only a "
            "topic can keep it (keep_seconds, keep_bytes, keep_messages, keep_forever, keep_latest)"
        )
    if target is None:
        for holds, wanting, going in (
            (properties.overflow == DEAD_LETTER, "overflow 'dead_letter'", "the oldest messages"),
            (properties.max_deliveries is not None, "max_deliveries", "messages"),
            (properties.keep_expired, "keep_expired", "messages"),
        ):
            if holds:
                raise InvalidArgument(
                    f"queue {name!r}: {wanting} needs dead_letter, the queue to which {going} go "
                    "then"
                )
        return
    if target == name:
        raise feeds_itself(name)
    there = state.names.get(target)
    theirs = made.get(target) if there is None else there.config.properties
    if theirs is None:
        raise QueueNotFound(
            f"dead_letter: there is no queue {target!r}: create it first, with "
            f"create_queue({target!r})"
        )
    if properties.persistent and not theirs.persistent:
        raise InvalidArgument(
            f"queue {name!r}: dead_letter {target!r} is gone after a restart (persistent=False): "
            "give one that stays"
        )
    check_letters(name, properties, theirs.schema)
    if theirs.verified_sender and not properties.verified_sender:
        raise InvalidArgument(
            f"queue {name!r}: its messages may have any sender, and those of dead_letter {target!r}"
            " are verified: give verified_sender=True, or another dead-letter queue"
        )


def _check_kept(name: str, properties: Properties) -> None:
    """Check that the options of keeping do not contradict each other."""
    if properties.overflow in GIVING_WAY and properties.keep_forever:
        raise InvalidArgument(
            f"queue {name!r} keeps everything for ever (keep_forever), so that nothing can give "
            f"way: overflow {properties.overflow!r} is not for it"
        )
    if properties.keep_latest is not None:
        _check_latest(name, properties.keep_latest, properties)


def _check_indexed(name: str, option: str, names: Iterable[str], words: str | None) -> None:
    """Check that the columns are texts or whole numbers: no others have an index, or are keys."""
    if words is None:
        return
    schema = schema_of_words(words)
    for each in names:
        found = schema.field(each).type if each in schema.names else pa.string()
        if not (pa.types.is_string(found) or pa.types.is_integer(found)):
            raise InvalidArgument(
                f"queue {name!r}: {option}: column {each!r} is of type {found}: there are indexes "
                "of texts and whole numbers"
            )


def _check_latest(name: str, key: str, properties: Properties) -> None:
    """Check that no option has other messages than the latest of each key go, or stay."""
    _check_indexed(name, "keep_latest", [key], properties.schema)
    for option, is_set, why in (
        ("timed", bool(properties.timed), "what is latest is told by commits, not by times"),
        ("keep_forever", properties.keep_forever, "it would keep the others, too"),
        ("keep_bytes", properties.keep_bytes is not None, "each key's latest message stays"),
        ("keep_messages", properties.keep_messages is not None, "each key's latest message stays"),
        ("overflow", properties.overflow in GIVING_WAY, "each key's latest message stays"),
    ):
        if is_set:
            raise InvalidArgument(
                f"queue {name!r} keeps the latest message of each {key!r} (keep_latest), and has "
                f"{option} {getattr(properties, option)!r}: {why}; leave one of the two out"
            )


def _check_effect(queue: NewQueue, before: Properties) -> None:
    """Check that each changed option has an effect. Raises InvalidArgument, with what it needs.

    An option is changed if it was not so `before`. One that lost its effect by another change stays
    as it is: it has its effect again when that is altered back.
    """
    now = queue.properties
    expires = now.timed or (now.timed is None and queue.kind == WORK)  # (OB2, `header_rules`)
    sends = now.max_deliveries is not None or now.keep_expired or now.overflow == DEAD_LETTER
    lets_go = "keep_forever keeps everything: leave one of the two out"
    for option, counts, needs in (
        (
            "default_priority",
            priority_of_puts(now.order, 1) > 0,
            "priorities count in a queue that is read by them: give order='priority' too",
        ),
        ("keep_expired", expires, "nothing expires where times do not count: give timed=True too"),
        (
            "dead_letter",
            sends,
            "give max_deliveries, keep_expired=True or overflow='dead_letter' too",
        ),
        (
            "grow_to",
            (now.grow_to or 0) > queue.capacity,
            f"the capacity is {queue.capacity}: give more than that, or None",
        ),
        ("group_max_in_flight", now.grouped, "there are no groups: give grouped=True too"),
        ("group_rate", now.grouped, "there are no groups: give grouped=True too"),
        ("codec", now.schema is None, "a typed queue holds rows: leave it out"),
        ("max_stream_bytes", now.schema is None, "no stream is put to a typed queue: leave it out"),
        ("keep_seconds", not now.keep_forever, lets_go),
        ("keep_bytes", not now.keep_forever, lets_go),
        ("keep_messages", not now.keep_forever, lets_go),
    ):
        value = getattr(now, option)
        if not counts and value not in (getattr(before, option), getattr(DEFAULT, option)):
            raise InvalidArgument(
                f"queue {queue.name!r}: {option} {value!r} would have no effect: {needs}"
            )


def with_times(name: str, kind: str, properties: Properties) -> Properties:
    """The properties, timed if it is a work queue whose messages expire (OB2, `header_rules`).

    Raises InvalidArgument where they would expire, and times do not count.
    """
    if properties.timed or (properties.ttl is None and properties.max_ttl is None):
        return properties
    if properties.timed is None and kind == WORK:
        return properties._replace(timed=True)
    option = "max_ttl" if properties.ttl is None else "ttl"
    raise InvalidArgument(
        f"queue {name!r}: {option} counts where times do: give timed=True too, or {option}=None"
    )


def feeds_itself(name: str) -> InvalidArgument:
    return InvalidArgument(f"queue {name!r}: another one must be its dead-letter queue")


def check_unused(queue: Queue) -> None:
    """Raises QueueInUse; under the queue's lock."""
    name, space = queue.name, queue.space
    if space.open_transactions:
        raise QueueInUse(
            f"queue {name!r} has {space.open_transactions} open transactions: end them first "
            "(store.admin.transactions() lists them)"
        )
    if space.pending_messages:
        raise QueueInUse(f"a put to queue {name!r} is under way: try again")
    if space.prepared:
        raise QueueInUse(
            f"queue {name!r} has {space.prepared} prepared transactions: decide them first "
            "(store.prepared.list() lists them)"
        )
    in_flight = sum(s.delivered for s in queue.subscriptions.values())
    if in_flight:
        raise QueueInUse(
            f"{in_flight} messages of queue {name!r} are in flight: end the transactions that got "
            "them first, the prepared ones too (see store.prepared)"
        )


def topic_named(state: EngineState, name: str) -> Queue:
    queue = state.queue(name)
    if queue.config.kind != TOPIC:
        raise InvalidArgument(
            f"queue {queue.name!r} is a work queue, whose messages go to one reader each: read it "
            f"as {queue.name!r}"
        )
    return queue


def check_where(queue: Queue, where: object) -> None:
    """A selector fits the queue. Raises InvalidSelector."""
    if isinstance(where, str):
        conditions.condition(where, queue.schema, is_volatile=queue.is_volatile)


def check_form(queue: str, subscription: Subscription, request: Mapping[str, object]) -> None:
    """One that is there is as asked for, as far as anything is said. Raises SubscriptionExists."""
    name = subscription.name
    there = {name: getattr(subscription, name) for name in SubscriptionForm._fields}
    differing = [
        f"{option} is {there[option]!r}, not {wanted!r}"
        for option, wanted in request.items()
        if there[option] != wanted
    ]
    if differing:
        raise SubscriptionExists(
            f"subscription '{queue}/{name}' is there already, and not as asked for: "
            f"{'; '.join(differing)}; ask for what is there, use another name, or "
            f"unsubscribe({queue!r}, {name!r}) first"
        )

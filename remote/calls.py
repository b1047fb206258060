"""The store's methods that a client may call outside of transactions, with their arguments checked.

Only what is in the table can be called, with exactly the arguments named there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol, cast

from quire.arguments import (
    check_changes,
    check_first,
    check_flag,
    check_keys,
    check_lease_id,
    check_limit,
    check_max_messages,
    check_message_id,
    check_name,
    check_names,
    check_passed,
    check_queues,
    check_ranges,
    check_seconds,
    check_source,
    check_state_key,
    check_state_name,
    check_switch,
    check_transaction_id,
    check_type,
)
from quire.errors import InvalidArgument, RemoteError
from quire.info import SubscriptionInfo
from quire.message import Messages
from quire.redriving import Chosen, Redriven
from quire.schedules import read_schedule
from quire.starts import Start, check_time, starts_given
from quire.store import Store

from .delivery import Answer, messages_answers, value_answer
from .protocol import Decision, Header
from .results import info_json, infos_json, rows_json

BROWSE: Final = "browse"  # whose answer is of several frames, as is that of
SCHEDULED: Final = "scheduled"
PUT_BACK: Final = "put_back"
SUBSCRIBE: Final = "subscribe_many"
CLAIM: Final = "claim"
SUBSCRIBING: Final = (SUBSCRIBE, CLAIM)  # what a client may hold by that ends with it
SUBSCRIBE_ARGUMENTS: Final = frozenset({"subscription", "starts", "exclusive", "durable"})
BROWSE_ARGUMENTS: Final = frozenset({"source", "start", "max_messages"})
GET_STATE: Final = "get_state"  # whose answers have bodies
STATE_ITEMS: Final = "state_items"
STATE_ARGUMENTS: Final = {
    GET_STATE: frozenset({"name", "key"}), STATE_ITEMS: frozenset({"name"})
}  # fmt: skip
SCHEDULED_ARGUMENTS: Final = frozenset({"source", "max_messages"})


class Holding(Protocol):
    """A store whose subscriptions clients may hold."""

    def subscribe_for(
        self,
        holder: object,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool | None,
        durable: bool | None,
    ) -> list[SubscriptionInfo]:
        """`subscribe_many`, held by this client."""

    def claim_for(self, holder: object, names: Iterable[tuple[str, str]]) -> None:
        """They are this client's, from the owner before."""

    def let_go_of(self, holder: object) -> None:
        """The client is gone."""


class Moving(Protocol):
    """A store that puts dead letters back, step by step."""

    def put_back(
        self,
        source: str,
        start: int,
        end: int,
        most: int,
        chosen: Chosen | None,
        to: str | None,
    ) -> Redriven:
        """A step."""


class Call(NamedTuple):
    """A method of the store: the names of its arguments, and its result as JSON."""

    arguments: frozenset[str]
    answer: Callable[[Store, Header], object]
    changes: bool = False  # something, so that its outcome matters where its answer does not come


def _call(
    arguments: str, answer: Callable[[Store, Header], object], *, changes: bool = False
) -> Call:
    return Call(frozenset(arguments.split()), answer, changes)


def _queue(arguments: Header, name: str = "queue") -> str:
    return check_name(arguments[name], "queue")


def _subscription(arguments: Header) -> str:
    return check_name(arguments["subscription"], "subscription")


def _put_back(store: Moving, arguments: Header) -> list[int]:
    chosen, to = arguments["chosen"], arguments["to"]
    if chosen is not None:
        if not isinstance(chosen, list) or len(chosen) != 2 or not isinstance(chosen[0], list):
            raise InvalidArgument(f"chosen {chosen!r:.100}: give ids, and the last one")
        ids = [check_message_id(each) for each in chosen[0]]
        chosen = Chosen(ids, check_message_id(chosen[1]))
    found = store.put_back(
        check_source(arguments["source"]),
        check_passed(arguments["start"]),
        check_passed(arguments["end"]),
        check_max_messages(arguments["most"]),
        chosen,
        None if to is None else check_name(to, "queue"),
    )
    return list(found)


_ENDING: Final = frozenset({"commit", "prepare", *(decision.value for decision in Decision)})
_NOTHING: Final = {"queue": None, "cron": None}  # which is refused

CALLS: Final[Mapping[str, Call]] = {
    "create_queues": _call(
        "queues",
        lambda store, a: infos_json(
            store.create_queues([queue.to_dict() for queue in check_queues(a["queues"])])
        ),
        changes=True,
    ),
    "catalog": _call("type", lambda store, a: infos_json(store.catalog(check_type(a["type"])))),
    "alter_queue": _call(
        "name changes",
        lambda store, a: info_json(
            store.alter_queue(_queue(a, "name"), **check_changes(a["changes"]))
        ),
        changes=True,
    ),
    "rename_queue": _call(
        "old new",
        lambda store, a: info_json(store.rename_queue(_queue(a, "old"), _queue(a, "new"))),
        changes=True,
    ),
    "purge": _call(
        "queue subscription",
        lambda store, a: store.purge(
            _queue(a), None if a["subscription"] is None else _subscription(a)
        ),
        changes=True,
    ),
    PUT_BACK: _call(
        "source start end most chosen to",
        lambda store, a: _put_back(cast(Moving, store), a),
        changes=True,
    ),
    "create_alias": _call(
        "name queue replace",
        lambda store, a: store.create_alias(
            check_name(a["name"], "alias"), _queue(a), check_flag("replace", a["replace"])
        ),
        changes=True,
    ),
    "drop_alias": _call(
        "name", lambda store, a: store.drop_alias(check_name(a["name"], "alias")), changes=True
    ),
    "aliases": _call("", lambda store, a: store.aliases()),
    "switch": _call(
        "puts gets",
        lambda store, a: store.switch(
            check_switch("puts", a["puts"]), check_switch("gets", a["gets"])
        ),
        changes=True,
    ),
    "create_schedule": _call(
        "name schedule exist_ok",
        lambda store, a: info_json(
            store.create_schedule(
                check_name(a["name"], "schedule"),
                exist_ok=check_flag("exist_ok", a["exist_ok"]),
                **{**_NOTHING, **read_schedule(a["schedule"])},
            )
        ),
        changes=True,
    ),
    "alter_schedule": _call(
        "name schedule",
        lambda store, a: info_json(
            store.alter_schedule(check_name(a["name"], "schedule"), **read_schedule(a["schedule"]))
        ),
        changes=True,
    ),
    "drop_schedule": _call(
        "name",
        lambda store, a: store.drop_schedule(check_name(a["name"], "schedule")),
        changes=True,
    ),
    "schedules": _call("", lambda store, a: infos_json(store.schedules())),
    "drop_queue": _call("name", lambda store, a: store.drop_queue(_queue(a, "name")), changes=True),
    "queues": _call(
        "names",
        lambda store, a: infos_json(
            store.queues(None if a["names"] is None else check_names(a["names"]))
        ),
    ),
    "positions": _call("name", lambda store, a: list(store.positions(_queue(a, "name")))),
    "positions_many": _call(
        "names",
        lambda store, a: {
            name: list(pair) for name, pair in store.positions_many(check_names(a["names"])).items()
        },
    ),
    "position_at": _call(
        "name time",
        lambda store, a: store.position_at(_queue(a, "name"), check_time(a["time"]) / 1e6),
    ),
    "records": _call(
        "name start limit",
        lambda store, a: rows_json(
            store.records(_queue(a, "name"), check_passed(a["start"]), check_limit(a["limit"]))
        ),
    ),
    "unsubscribe": _call(
        "queue subscription",
        lambda store, a: store.unsubscribe(_queue(a), _subscription(a)),
        changes=True,
    ),
    "subscriptions": _call("queue", lambda store, a: infos_json(store.subscriptions(_queue(a)))),
    "transactions": _call("", lambda store, a: infos_json(store.transactions())),
    "transaction_info": _call(
        "transaction_id",
        lambda store, a: info_json(
            store.transaction_info(check_transaction_id(a["transaction_id"]))
        ),
    ),
    "abort": _call(
        "transaction_id",
        lambda store, a: store.abort(check_transaction_id(a["transaction_id"])),
        changes=True,
    ),
    "recover": _call("", lambda store, a: infos_json(store.recover())),
    "ledger_many": _call("keys", lambda store, a: store.ledger_many(check_keys(a["keys"]))),
    "lease_many": _call(
        "ranges seconds gaps",
        lambda store, a: infos_json(
            store.lease_many(
                check_ranges(a["ranges"]),
                check_seconds(a["seconds"]),
                check_flag("gaps", a["gaps"]),
            )
        ),
        changes=True,
    ),
    "renew": _call(
        "lease_id seconds",
        lambda store, a: store.renew(check_lease_id(a["lease_id"]), check_seconds(a["seconds"])),
        changes=True,
    ),
    "release": _call(
        "lease_id", lambda store, a: store.release(check_lease_id(a["lease_id"])), changes=True
    ),
    "state_names": _call("", lambda store, a: store.state_names()),
    "drop_state": _call(
        "name", lambda store, a: store.drop_state(check_state_name(a["name"])), changes=True
    ),
    "sync": _call("", lambda store, a: store.sync(), changes=True),
    "failed": _call("", lambda store, a: store.failed),
    "status": _call("", lambda store, a: store.status()),
    "checkpoint": _call("", lambda store, a: store.checkpoint(), changes=True),
    "verify": _call(
        "contents",
        lambda store, a: info_json(store.verify(contents=check_flag("contents", a["contents"]))),
    ),
}


def changes(op: str) -> bool:
    """Whether an operation changes something, so that it matters whether it took effect."""
    return op in _ENDING or op in SUBSCRIBING or (op in CALLS and CALLS[op].changes)


def answer_call(store: Store, op: str, header: Header) -> Iterator[Answer]:
    """Call the store and tell the result."""
    arguments = _arguments(header)
    if op == BROWSE:
        _check_arguments(op, arguments, BROWSE_ARGUMENTS)
        yield from messages_answers(_browse(store, arguments))
        return
    if op == SCHEDULED:
        _check_arguments(op, arguments, SCHEDULED_ARGUMENTS)
        source, most = check_source(arguments["source"]), arguments["max_messages"]
        yield from messages_answers(store.scheduled(source, check_max_messages(most)))
        return
    if op in STATE_ARGUMENTS:
        _check_arguments(op, arguments, STATE_ARGUMENTS[op])
        yield _state(store, arguments)
        return
    call = CALLS.get(op)
    if call is None:
        raise RemoteError(f"the owner of the store knows no operation {op!r:.100}")
    _check_arguments(op, arguments, call.arguments)
    yield {"result": call.answer(store, arguments)}, ()


def answer_subscribing(store: Holding, holder: object, header: Header) -> Iterator[Answer]:
    """The same of `subscribe_many`, and of a claim, for the client that holds what it makes."""
    arguments = _arguments(header)
    if header.get("op") == CLAIM:
        _check_arguments(CLAIM, arguments, frozenset({"names"}))
        store.claim_for(holder, _names(arguments["names"]))
        yield {"result": None}, ()
        return
    _check_arguments(SUBSCRIBE, arguments, SUBSCRIBE_ARGUMENTS)
    found = store.subscribe_for(
        holder,
        None if arguments["subscription"] is None else _subscription(arguments),
        starts_given(arguments["subscription"], arguments["starts"]),
        check_switch("exclusive", arguments["exclusive"]),
        check_switch("durable", arguments["durable"]),
    )
    yield {"result": infos_json(found)}, ()


def is_lasting(header: Header) -> bool:
    """Whether what is asked for does not end with its client."""
    arguments = header.get("arguments")
    return isinstance(arguments, dict) and arguments.get("durable", False) in (True, None)


def _names(given: object) -> list[tuple[str, str]]:
    if not isinstance(given, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in given
    ):
        raise InvalidArgument("names: give pairs of a queue and a subscription")
    return [(check_name(pair[0], "queue"), check_name(pair[1], "subscription")) for pair in given]


def _arguments(header: Header) -> Header:
    arguments = header.get("arguments", {})
    if not isinstance(arguments, dict):
        raise RemoteError("a message's arguments are not a JSON object")
    return arguments


def _browse(store: Store, arguments: Header) -> Messages:
    return store.browse(
        check_source(arguments["source"]),
        check_first(arguments["start"]),
        check_max_messages(arguments["max_messages"]),
    )


def _state(store: Store, arguments: Header) -> Answer:
    """One value of a state, or all: which keys there are, and behind each other their values."""
    name = check_state_name(arguments["name"])
    if "key" in arguments:
        return value_answer(store.get_state(name, check_state_key(arguments["key"])))
    items = store.state_items(name)
    lengths = [[key, len(value)] for key, value in items.items()]
    return {"keys": lengths}, (b"".join(items.values()),)


def _check_arguments(op: str, given: Header, expected: frozenset[str]) -> None:
    unknown, missing = given.keys() - expected, expected - given.keys()
    if unknown:
        raise InvalidArgument(f"{op} has no argument {', '.join(sorted(unknown))}")
    if missing:
        raise InvalidArgument(f"{op} misses {', '.join(sorted(missing))}")

"""The store's methods that a client may call outside of transactions, with their arguments checked.

Only what is in the table can be called, with exactly the arguments named there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from quire.errors import InvalidArgument, RemoteError

from .delivery import Answer, messages_answers
from .results import info_json, lease_json, records_json, report_json


class Call(NamedTuple):
    """A method of the store, the names of its arguments, and its result as JSON."""

    method: str
    arguments: frozenset[str]
    result: Callable[[Any], Any]


def _nothing(_: Any) -> None:
    return None


def _itself(value: Any) -> Any:
    return value


def _infos(values: Any) -> list[dict[str, Any]]:
    return [info_json(value) for value in values]


def _call(method: str, arguments: str, result: Callable[[Any], Any]) -> tuple[str, Call]:
    return method, Call(method, frozenset(arguments.split()), result)


CALLS: Final[Mapping[str, Call]] = dict(
    [
        _call("create_queue", "name kind capacity max_messages data_file", info_json),
        _call("queues", "", _infos),
        _call("queue", "name", info_json),
        _call("drop_queue", "name", _nothing),
        _call("subscribe", "queue subscription start", info_json),
        _call("unsubscribe", "queue subscription", _nothing),
        _call("subscriptions", "queue", _infos),
        _call("records", "name start limit", records_json),
        _call("transactions", "", _infos),
        _call("transaction_info", "transaction_id", info_json),
        _call("abort", "transaction_id", _nothing),
        _call("recover", "", _infos),
        _call("ledger", "key", _itself),
        _call("positions", "name", list),
        _call("lease", "queue start end seconds", lease_json),
        _call("release", "lease_id", _nothing),
        _call("renew", "lease_id seconds", _nothing),
        _call("status", "", _itself),
        _call("checkpoint", "", _nothing),
        _call("verify", "", report_json),
    ]
)


def answer_call(store: Any, op: str, header: Mapping[str, Any]) -> Iterator[Answer]:
    """Call the store and tell the result."""
    arguments = header.get("arguments", {})
    if not isinstance(arguments, dict):
        raise RemoteError("a message's arguments are not a JSON object")
    if op == "browse":
        yield from messages_answers(store.browse(*_browse_arguments(arguments)))
        return
    call = CALLS.get(op)
    if call is None:
        raise RemoteError(f"the owner of the store knows no operation {op!r}")
    unknown = arguments.keys() - call.arguments
    if unknown:
        raise InvalidArgument(f"{op} has no argument {', '.join(sorted(unknown))}")
    try:
        method = getattr(store, call.method)
        result = method(**arguments)
    except TypeError as error:
        raise InvalidArgument(f"{op}: {error}") from None
    yield {"result": call.result(result)}, ()


def _browse_arguments(arguments: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    if arguments.keys() - {"source", "start", "max_messages"} or "source" not in arguments:
        raise InvalidArgument("browse takes source, start and max_messages")
    return arguments["source"], arguments.get("start"), arguments.get("max_messages", 1000)

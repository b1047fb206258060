"""Arguments of every kind for every call, in every form of a store: an error of Quire, or none.

The calls are those of the interfaces, so a new one is here at once. Each parameter in turn is given
what nobody should give, the others what the call needs. Objects whose own methods raise are left
out: what they raise is theirs.
"""

from __future__ import annotations

import array
import inspect
import math
import random
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import quire
from quire.errors import InvalidArgument, QueueNotFound, QuireError
from quire.interface.integration import Integration, TransactionIntegration
from quire.interface.namespaces import Admin, Cron, Delayed, Listeners, Prepared, States
from quire.interface.sessions.session import Session
from quire.interface.store import Store as Interface
from quire.interface.transaction import Transaction
from tests.behaviour.forms import AnyStore


def released_view() -> memoryview:
    """A view that has no bytes any more."""
    view = memoryview(b"x")
    view.release()
    return view


HOSTILE: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "zero": lambda: 0,
    "negative": lambda: -1,
    "five": lambda: 5,
    "above 64 bits": lambda: 1 << 64,
    "far below 64 bits": lambda: -(10**400),
    "far above 64 bits": lambda: 10**400,
    "fraction": lambda: 1.5,
    "NaN": lambda: math.nan,
    "infinite": lambda: math.inf,
    "Decimal": lambda: Decimal("NaN"),
    "Fraction": lambda: Fraction(1, 3),
    "complex": lambda: 1j,
    "text": lambda: "text",
    "no text": lambda: "",
    "half a character": lambda: "\ud800",
    "zero byte": lambda: "a\0b",
    "long text": lambda: "x" * 100_000,
    "bytes": lambda: b"x",
    "bytearray": lambda: bytearray(b"x"),
    "view with gaps": lambda: memoryview(b"abcdef")[::2],
    "view of numbers": lambda: memoryview(array.array("q", [1, 2])),
    "view of no shape": lambda: np.array(5).data,
    "released view": released_view,
    "array": lambda: np.array([1.0, 2.0]),
    "empty array": lambda: np.array([]),
    "array of objects": lambda: np.array(["a", None], object),
    "array of times": lambda: np.array(["2026-01-01"], "datetime64[s]"),
    "numpy number": lambda: np.int64(5),
    "numpy time": lambda: np.datetime64("2026-01-01"),
    "Arrow array": lambda: pa.array(["a", None]),
    "Arrow number": lambda: pa.scalar(5),
    "list": lambda: [1],
    "empty list": list,
    "list of lists": lambda: [["a", 1]],
    "list of texts": lambda: ["work"],
    "tuple": lambda: (1, 2, 3),
    "dict": lambda: {"a": 1},
    "dict of numbers": lambda: {1: 2},
    "dict of bytes": lambda: {b"a": None},
    "set": lambda: {1, 2},
    "iterator": lambda: iter([1, 2]),
    "object": object,
    "class": lambda: int,
    "function": lambda: len,
    "datetime without a zone": lambda: datetime(2026, 1, 1),  # noqa: DTZ001
    "span": lambda: timedelta.max,
    "negative span": lambda: timedelta(-1),
}
KINDS_OF_A_RUN = 6  # that the seed draws for each parameter: all of them take a minute
# What a call needs, by the names of parameters.
NEEDED: dict[str, Any] = {
    "queue": "work", "source": "work", "name": "work", "payload": b"x", "payloads": [b"x"],
    "subscription": "a", "start": 0, "end": 0, "old": "work", "new": "other", "key": "k",
    "keys": ["k"], "version": 1, "xid": "x", "number": 1, "up_to": 0, "id": 1, "message_id": 1,
    "position": 0, "positions": {"work": 0}, "starts": {"topic": "earliest"}, "to": "latest",
    "seconds": 1.0, "value": b"v", "ltds_id": 1 << 62, "data": b"", "blocks": [], "message": 1,
    "names": ["work"], "queues": [], "ranges": [], "lease_id": 1, "callback": len,
    "cron": "0 0 * * *", "time": 0.0, "transaction_id": 1, "type": "queue",
}  # fmt: skip
# These wait for somebody else, end the store, or take long.
LEFT_OUT = {
    "close",
    "check_usable",
    "verify",
    "checkpoint",
    "when_ready",
    "poll_notices",
    "request",
}
WAITS = {"timeout", "seconds"}  # parameters of which a right value may mean to wait
SUBJECTS: dict[type, Callable[[Any], Any]] = {
    Interface: lambda store: store,
    Admin: lambda store: store.admin,
    Cron: lambda store: store.cron,
    Delayed: lambda store: store.delayed,
    States: lambda store: store.states,
    Prepared: lambda store: store.prepared,
    Listeners: lambda store: store.listeners,
    Integration: lambda store: store.integration,
    Transaction: lambda store: store.transaction(),
    TransactionIntegration: lambda store: store.transaction(),
    Session: lambda store: store.session("client"),
}


def parameters_of(method: Any) -> Iterator[inspect.Parameter]:
    """The parameters of a method; options that it takes by name are parameters, too."""
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind is not parameter.VAR_KEYWORD:
            yield parameter
            continue
        [options] = typing.get_args(typing.get_type_hints(method)[parameter.name]) or [None]
        for name in getattr(options, "__annotations__", ()):
            yield inspect.Parameter(name, parameter.KEYWORD_ONLY, default=None)


def methods_of(subject: type) -> list[str]:
    """The calls of an interface that take arguments."""
    return [
        name
        for name, member in vars(subject).items()
        if inspect.isfunction(member) and name[0] != "_" and name not in LEFT_OUT
    ]


@pytest.fixture
def prepared(store: AnyStore) -> AnyStore:
    """The store, with a queue and a subscription."""
    store.create_queue("work")
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "a")
    return store


def attempt(store: Any, subject: type, name: str, arguments: dict[str, Any]) -> str | None:
    """Make the call; an error that is none of Quire's is returned."""
    of = SUBJECTS[subject](store)
    try:
        target = of.integration if subject is TransactionIntegration else of
        getattr(target, name)(**arguments)
    except QuireError:
        pass
    except Exception as error:  # noqa: BLE001 - which is what the test is about
        return f"{type(error).__name__}: {error!s:.90}"
    finally:
        if subject in (Transaction, TransactionIntegration):
            with suppress(QuireError):
                of.rollback()
    return None


@pytest.mark.cases(3)
@pytest.mark.promise(13)
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.__name__)
def test_a_hostile_argument(prepared: AnyStore, subject: type, rng: random.Random) -> None:
    """An error of Quire's tree, or none: whatever else is a bug."""
    wrong = []
    for name in methods_of(subject):
        parameters = list(parameters_of(getattr(subject, name)))
        needed = {p.name: NEEDED.get(p.name) for p in parameters if p.default is p.empty}
        for parameter in parameters:
            for kind in rng.sample(list(HOSTILE), KINDS_OF_A_RUN):
                value = HOSTILE[kind]()
                if parameter.name in WAITS and (
                    value is None or isinstance(value, int | float | Fraction | timedelta)
                ):
                    continue
                found = attempt(prepared, subject, name, {**needed, parameter.name: value})
                if found is not None:
                    wrong.append(f"{name}({parameter.name}={kind}): {found}")
    assert not wrong, "\n".join(wrong)


# What was of another class once: in each form, whatever the seed draws.
REFUSED: dict[str, Callable[[Any], object]] = {
    "txn of a session's put": lambda store: store.session("c").put("work", b"x", txn=5),
    "txn of begin": lambda store: store.session("c").begin("work", b"x", txn="text"),
    "txn of submit": lambda store: store.session("c").submit(1, txn=5),
    "txn of take": lambda store: store.session("c").take(1, txn=5),
    "txn of withdraw": lambda store: store.session("c").withdraw(1, txn=[]),
    "watch": lambda store: store.session("c", watch=np.array([1, 2])),
    "attributes of a request": lambda store: store.request("work", b"x", 0.0, attributes=["a"]),
    "option of a request": lambda store: store.request("work", b"x", 0.0, priorty=1),
    "array as time-out of get": lambda store: store.get("work", np.array([1.0, 2.0])),
    "empty array as time-out": lambda store: store.get_many("work", timeout=np.array([])),
    "array as ack": lambda store: store.consume("work", ack=np.array(["a", "b"])),
    "array as event": lambda store: store.listeners.add("work", on=np.array(["a", "b"])),
    "rate": lambda store: store.create_queue("new", rate=10**400),
    "released payload": lambda store: store.put("work", released_view()),
    "released piece": lambda store: store.put_stream("work", released_view()),
    "released names": lambda store: store.queues(released_view()),
    "names of no shape": lambda store: store.queues(np.array(5).data),
    "released keys": lambda store: store.integration.ledger_many(released_view()),
    "view with gaps as a key": lambda store: store.queue(memoryview(b"abcd")[::2]),
    "list of views": lambda store: store.integration.ledger_many([memoryview(b"abcd")[::2]]),
}


@pytest.mark.promise(13)
def test_what_was_refused_by_errors_of_other_classes(prepared: AnyStore) -> None:
    """It is InvalidArgument."""
    for what, call in REFUSED.items():
        try:
            call(prepared)
        except InvalidArgument:
            continue
        except Exception as error:  # noqa: BLE001 - named below
            pytest.fail(f"{what}: {error!r}")
        pytest.fail(f"{what} is accepted")


@pytest.mark.promise(13)
def test_a_request_that_is_refused_makes_no_queue(prepared: AnyStore) -> None:
    """Nor where it goes to a queue that is not there."""
    for payload in ("text", None, 5, released_view()):
        with pytest.raises(InvalidArgument):
            prepared.request("work", payload, 0.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        prepared.request("work", b"x", 0.0, attributes={"a": 5})  # type: ignore[dict-item]
    with pytest.raises(QueueNotFound):
        prepared.request("missing", b"x", 0.0)
    assert [queue.name for queue in prepared.queues()] == ["topic", "work"]


@pytest.mark.promise(13)
def test_an_environment_that_is_none(store_path: str) -> None:
    """It is refused wherever one may be given."""
    quire.open(store_path).close()
    calls: list[Callable[[Any], object]] = [
        lambda env: quire.open(store_path, env=env),
        lambda env: quire.dump(store_path, env=env),
    ]
    for call in calls:
        for env in (5, "text", np.array([1, 2])):
            with pytest.raises(InvalidArgument, match="env"):
                call(env)

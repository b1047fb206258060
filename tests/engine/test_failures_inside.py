"""An error that the engine does not raise on purpose, at each step of a commit and a prepare.

Whatever fails: a transaction that is told as committed is there when the store is opened again, and
one that is told as rolled back is not.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.errors import QuireError
from quire.testing import SimEnv
from tests.engine.failing import SHOWN, Failing

OPTIONS: dict[str, Any] = {
    "segment_bytes": 1 << 20, "grow_bytes": 1 << 16, "inline_limit_bytes": 3000, "data_files": 2,
}  # fmt: skip
pytestmark = SHOWN
ALL = 1_000_000
QUEUES = ("work", "other", "memory")


def _light(txn: Transaction, payload: bytes) -> None:
    txn.put("work", payload)


def _light_and_large(txn: Transaction, payload: bytes) -> None:
    txn.put("work", payload)
    for number in range(40):
        txn.enter(f"{payload.decode()}-{number}" + "x" * 80, 1)


def _on_pages(txn: Transaction, payload: bytes) -> None:
    txn.put("work", payload)
    txn.put_many("work", [b"x" * 3000])
    txn.put("other", b"x" * 3000)


def _mixed(txn: Transaction, payload: bytes) -> None:
    txn.put("work", payload)
    txn.put("memory", payload)


def _more(txn: Transaction, payload: bytes) -> None:
    txn.put("work", payload)
    txn.get("other")
    txn.enter(payload.decode(), 1)
    txn.set_value("s", "k", payload)


def _in_a_file(txn: Transaction, payload: bytes) -> None:
    txn.put_many("work", [payload, b"x" * 3000])
    txn.put_many("other", [b"x" * 3000])


KINDS: dict[str, Callable[[Transaction, bytes], None]] = {
    "light": _light,
    "light, with a large record": _light_and_large,
    "on pages": _on_pages,
    "in a file": _in_a_file,
    "mixed": _mixed,
    "with more": _more,
}


@pytest.mark.cases(3)
@pytest.mark.promise(2)
@pytest.mark.parametrize(
    ("kind", "prepare"),
    [(k, p) for k in KINDS for p in (False, True) if (k, p) != ("mixed", True)],
)
def test_promise_2_what_fails_inside_tells_the_state_as_it_is(
    rng: Random, spread: int, kind: str, *, prepare: bool
) -> None:
    """Each function of the engine that is begun, and each that is built in, has its turn.

    In a short run some of them, which the seed says.
    """
    env = SimEnv()
    expected: list[bytes] = []
    store = Store.open("/s", env=env, background=False, **OPTIONS)
    for name in QUEUES:
        store.create_queue(name, kind="work", type="volatile" if name == "memory" else "persistent")
    moment, failing = 0, Failing(1)
    while failing.raised or not moment:
        moment += rng.randint(1, 2 * spread - 1)
        failing = Failing(moment, rng.choice((MemoryError, AttributeError)))
        payload, xid = b"%06d" % moment, f"x{moment}"
        store.put("other", b"to be read", durable=moment % 2 == 0)
        txn = store.transaction(large=kind == "in a file")
        KINDS[kind](txn, payload)
        try:
            with failing():
                txn.prepare(xid) if prepare else txn.commit()
            assert txn.state == ("prepared" if prepare else "committed")
        except (MemoryError, AttributeError, QuireError):
            assert failing.raised
        if not prepare:
            txn.rollback()
        state = txn.state
        if failing.raised:
            txn.rollback() if state == "open" else None
            store.close()
            store = Store.open("/s", env=env, background=False, **OPTIONS)
        told = moment, state, failing.where
        listed = [info.xid for info in store.prepared.list()]
        is_there = payload in store.browse("work", max_messages=ALL).payloads()
        if prepare:
            assert not is_there, told
            assert (xid in listed) is (state == "prepared") or state == "in doubt", told
            if xid in listed:
                store.prepared.rollback(xid)
        else:
            assert is_there is (state == "committed") or state == "in doubt", told
        if is_there:
            expected.append(payload)
    store.close()
    with Store.open("/s", env=env, background=False, **OPTIONS) as store:
        assert expected == [
            p for p in store.browse("work", max_messages=ALL).payloads() if len(p) == 6
        ]
        assert store.prepared.list() == []
        # A failure may leave pages behind that nobody gives back.
        assert [f for f in store.admin.verify().findings if "belong to nobody" not in f] == []


@pytest.mark.parametrize("prepare", [False, True])
def test_what_has_failed_inside_holds_nothing(rng: Random, spread: int, *, prepare: bool) -> None:
    """In a store that is open still, the same keys and xid are free for the next one."""
    moment, failing = 0, Failing(1)
    env = SimEnv()
    store = Store.open("/s", env=env, background=False, **OPTIONS)
    for name in QUEUES:
        store.create_queue(name, kind="work")
    while failing.raised or not moment:
        moment += rng.randint(1, 2 * spread - 1)
        failing = Failing(moment, rng.choice((MemoryError, AttributeError)))
        key = b"%06d" % moment
        txn = store.transaction()
        _more(txn, key)
        with suppress(MemoryError, AttributeError, QuireError), failing():
            txn.prepare("x") if prepare else txn.commit()
        if store.failed or txn.state == "in doubt":
            store.close()
            store = Store.open("/s", env=env, background=False, **OPTIONS)
        elif txn.state == "open":
            txn.rollback()
        if txn.state == "rolled back":
            again = store.transaction()
            _more(again, key)
            again.prepare("x")
            again.rollback()
        for info in store.prepared.list():
            store.prepared.rollback(info.xid)
    store.close()


def test_a_failure_leaves_no_lock_taken() -> None:
    """At each moment of what takes a lock by itself; a lock that stays taken would stop a store."""
    store = Store.open("/s", env=SimEnv(), background=False, **OPTIONS)
    kept_back = store._opened.kept_back
    moment, failing = 0, Failing(1)
    while failing.raised or not moment:
        moment += 1
        failing = Failing(moment)
        with suppress(MemoryError), failing():
            kept_back.admit()
        assert not kept_back._lock.locked(), failing.where
    assert moment > 5
    store.close()

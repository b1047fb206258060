"""Commits that one thread does together share groups, and each has its own outcome."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import AlreadyCommitted, DiskFull, QuireError, StoreFailed
from quire.journal import Journal
from quire.limits import GATHERED_CHANGES
from quire.testing import SimEnv
from tests.kit.limits import Limits

Outcomes = list[tuple[int, QuireError | None]]


@pytest.fixture
def store() -> Any:
    """A store with two queues, on a simulated disk."""
    files: dict[str, Any] = {"segment_bytes": 4 << 20, "grow_bytes": 1 << 19}  # it fills them
    with Store.open("/store", env=SimEnv(1), background=False, **files) as store:
        store.admin.create_queues([{"name": name, "kind": "work"} for name in "ab"])
        yield store


def noted(number: int, action: Callable[[], object], outcomes: Outcomes) -> Callable[[], None]:
    """An action that raises nothing, and whose outcome is noted."""

    def run() -> None:
        try:
            action()
        except QuireError as error:
            outcomes.append((number, error))
        else:
            outcomes.append((number, None))

    return run


def together(store: Store, actions: list[Callable[[], object]]) -> dict[int, QuireError | None]:
    """Their outcomes, by number."""
    outcomes: Outcomes = []
    store.together(noted(n, action, outcomes) for n, action in enumerate(actions))
    assert len(outcomes) == len(actions)
    return dict(outcomes)


def transaction(store: Store, payload: bytes, key: str = "", version: int = 0) -> Any:
    """With a message in each queue."""
    txn = store.transaction()
    txn.put("a", payload)
    txn.put("b", payload)
    if key:
        txn.enter(key, version)
    return txn


@pytest.mark.parametrize("count", [1, 2, GATHERED_CHANGES, 5 * GATHERED_CHANGES + 3])
def test_they_share_groups(store: Store, count: int) -> None:
    """In the order of the actions, within a few groups; ids and messages are all there."""
    sequencer = store._context.sequencer
    groups = sequencer.groups
    txns = [transaction(store, b"%d" % n) for n in range(count)]
    puts = [partial(store.put, "a", b"put %d" % n) for n in range(count)]
    actions = [action for txn, put in zip(txns, puts, strict=True) for action in (txn.commit, put)]
    assert set(together(store, actions).values()) == {None}
    assert sequencer.groups - groups == -(-2 * count // GATHERED_CHANGES)
    expected = [text % n for n in range(count) for text in (b"%d", b"put %d")]
    assert store.browse("a", max_messages=1000).payloads() == expected
    assert {txn.state for txn in txns} == {"committed"}


def test_one_that_is_refused_takes_no_other_along(store: Store) -> None:
    """Before it submits, and in its group."""
    ended = transaction(store, b"ended")
    ended.rollback()
    txns = [
        transaction(store, b"1", "key", 2),
        ended,
        transaction(store, b"3", "key", 1),
        transaction(store, b"4"),
    ]
    found = together(store, [txn.commit for txn in txns])
    assert [type(found[n]) for n in range(4)] == [
        type(None), type(found[1]), AlreadyCommitted, type(None),
    ]  # fmt: skip
    assert isinstance(found[1], QuireError)
    assert store.browse("a").payloads() == [b"1", b"4"]
    assert store.admin.verify().ok


@pytest.mark.parametrize("error", [StoreFailed, DiskFull])
def test_a_write_that_fails_is_told_to_all(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: type[QuireError]
) -> None:
    """None is applied."""

    def fail(*_: object, **__: object) -> int:
        raise error("a test")

    txns = [transaction(store, b"%d" % n) for n in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write_group", fail)
        patch.setattr(store._context.sequencer, "_write", fail)
        found = together(store, [txn.commit for txn in txns])
    assert {type(one) for one in found.values()} == {error}
    assert store.browse("a").payloads() == []
    if error is DiskFull:
        assert {txn.state for txn in txns} == {"open"}
        assert set(together(store, [txn.commit for txn in txns]).values()) == {None}
        assert store.browse("a").payloads() == [b"0", b"1", b"2"]
    else:
        assert {txn.state for txn in txns} == {"in doubt"}


def test_what_they_have_got_is_read_for_good(store: Store) -> None:
    """What a transaction has got is read for good by its commit, with the others'."""
    for n in range(6):
        store.put("a", b"%d" % n)
    txns = [store.transaction() for _ in range(6)]
    got = [txn.get("a") for txn in txns]
    assert [message.payload for message in got if message] == [b"%d" % n for n in range(6)]
    assert set(together(store, [txn.commit for txn in txns]).values()) == {None}
    assert store.queue("a").used_bytes == 0


@pytest.mark.promise(2)
@pytest.mark.parametrize(
    ("most", "first", "expected"),
    [
        (1, "a", "first, letter 0, letter 1, second, third"),
        (2, "a", "first, second, letter 0, letter 1, third"),
        (GATHERED_CHANGES, "a", "first, second, third, letter 0, letter 1"),
        *((most, "memory", "letter 0, letter 1, second, third") for most in (1, 2, 3)),
    ],
)
def test_promise_2_dead_letters_go_between_them(
    store: Store, limits: Limits, most: int, first: str, expected: str
) -> None:
    """After the first group, by a transaction of their own: each is there once, and ids grow.

    What is in memory only is no part of a group: after it they begin one.
    """
    limits(GATHERED_CHANGES=most)
    store.create_queue("counted", kind="work", max_deliveries=1, dead_letter="a")
    store.create_queue("memory", kind="work", type="volatile")
    store.put_many("counted", [b"letter 0", b"letter 1"])
    with store.transaction() as reader:
        assert len(reader.get_many("counted")) == 2
        reader.rollback()
    payloads = (b"first", b"second", b"third")
    txns = [store.transaction() for _ in payloads]
    for txn, queue, payload in zip(txns, (first, "a", "a"), payloads, strict=True):
        txn.put(queue, payload)
    assert set(together(store, [txn.commit for txn in txns]).values()) == {None}
    found = store.browse("a")
    assert b", ".join(found.payloads()).decode() == expected
    ids = [int(message.id) for message in found]
    assert ids == sorted(set(ids))
    assert store.queue("counted").messages == 0
    assert store.admin.verify().ok

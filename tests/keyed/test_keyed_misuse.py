"""Keyed states in a new user's hands: odd arguments, blocks that end otherwise, drops amid use."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import quire
import quire.aio
from quire import keyed
from quire.errors import (
    DiskFull,
    InvalidArgument,
    NotFound,
    QueueInUse,
    QueueNotFound,
    StateConflict,
    StoreCorrupt,
)
from quire.ltds import list_ids, path_of
from quire.testing import SimEnv
from tests.keyed.conftest import PATH, SMALL
from tests.kit.limits import Limits

LONG = 1e300  # seconds


@pytest.fixture
def state(store: quire.Store, env: SimEnv) -> keyed.KeyedState:
    """A state of numbers by name."""
    return keyed.open_state(store, "seen", "name", "name string, size bigint", env=env)


def row(name: str, size: int = 1) -> list[dict[str, Any]]:
    """One row."""
    return [{"name": name, "size": size}]


def put(store: quire.Store, state: keyed.KeyedState, *rows: Any, ttl: float | None = None) -> None:
    """Put rows with one transaction."""
    with store.transaction() as txn, state.within(txn) as changes:
        for each in rows:
            changes.put(each, ttl)


def test_times_beyond_all_clocks_are_for_ever(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState
) -> None:
    """Of a put, and of a state."""
    put(store, state, row("ada"), ttl=LONG)
    other = keyed.open_state(store, "other", "name", "name string, size bigint", LONG, env)
    put(store, other, row("bob"))
    env.advance(1e9)
    assert state.get(["ada"]).num_rows == other.get(["bob"]).num_rows == 1


def test_keys_in_many_forms(store: quire.Store, state: keyed.KeyedState) -> None:
    """Whatever has keys one by one; text alone is not meant."""
    odd = ["", "\0", "a\0", "a", "\u00e9", "e\u0301", "x" * 10_000]
    put(store, state, [*row("a", 9), *({"name": name, "size": len(name)} for name in odd)])
    for keys in (odd, tuple(odd), iter(odd), dict.fromkeys(odd).keys(), pa.array(odd)):
        assert state.get(keys).column("size").to_pylist() == [len(name) for name in odd]
    assert state.get(np.array(["a", "b"])).num_rows == state.get([{"name": "a"}]).num_rows == 1
    assert state.get([]).num_rows == 0
    for bad in ("a", b"a", {"name": "a"}, None, 5):
        with pytest.raises(InvalidArgument, match="give a list of them"):
            state.get(bad)
    with pytest.raises(InvalidArgument, match="give the columns name"):
        state.get([{"name": "a", "size": 1}])


def test_columns_that_a_state_has_not_are_told(store: quire.Store, state: keyed.KeyedState) -> None:
    """In words that hold for a state, whatever the rows come as."""
    more = pa.table({"name": ["a"], "more": [1]})
    for rows in ([{"name": "a", "more": 1}], more, more.to_pandas()):
        with pytest.raises(InvalidArgument, match="'more' is not in the schema, which is name "):
            put(store, state, rows)
    wide = pa.table({"name": ["a"], "size": ["1"]})
    for rows in (wide, wide.to_pandas()):
        with pytest.raises(InvalidArgument, match=r"of type .*string, and declared as bigint"):
            put(store, state, rows)
    one: Any = {"name": "a"}
    with pytest.raises(InvalidArgument, match="give one row as a list of one"):
        put(store, state, one)


def test_keys_that_no_state_can_have(store: quire.Store, env: SimEnv) -> None:
    """They are refused before anything is made."""
    names = [f"c{number}" for number in range(256)]
    schema = ", ".join(f"{name} int" for name in names)
    with pytest.raises(InvalidArgument, match="at most 255"):
        keyed.open_state(store, "wide", names, schema, env=env)
    key: Any = 5
    with pytest.raises(InvalidArgument, match="the name of a column, or a list"):
        keyed.open_state(store, "wide", key, schema, env=env)
    assert store.queues() == []
    wide = keyed.open_state(store, "wide", names[:255], schema, env=env)
    put(store, wide, [dict.fromkeys(names, 1)])
    assert wide.get([(1,) * 255]).num_rows == 1


def test_a_store_of_asyncio_is_refused(tmp_path: Path) -> None:
    """In words, before anything is made."""

    async def open_one() -> None:
        async with await quire.aio.open(tmp_path / "store") as store:
            given = cast(Any, store)
            with pytest.raises(InvalidArgument, match=r"asyncio\.to_thread"):
                keyed.open_state(given, "state")
            with pytest.raises(InvalidArgument, match=r"asyncio\.to_thread"):
                keyed.open_state(given, "state", "key", "key bigint")

    asyncio.run(open_one())


def test_a_transaction_that_is_rolled_back_in_the_block(
    store: quire.Store, state: keyed.KeyedState
) -> None:
    """The rows go with it."""
    txn = store.transaction()
    with state.within(txn) as rows:
        rows.put(row("ada"))
        txn.rollback()
    assert state.get(["ada"]).num_rows == 0
    put(store, state, row("ada"))
    assert state.get(["ada"]).num_rows == 1


@pytest.mark.parametrize("is_cleared", [False, True])
def test_a_state_that_its_transaction_changes_beside_a_block(
    store: quire.Store, state: keyed.KeyedState, *, is_cleared: bool
) -> None:
    """Two blocks at a time would each have a part of the rows, and none has both."""
    put(store, state, row("ada"))
    told = pytest.raises(StateConflict, match="have one `within` block")
    with told, store.transaction() as txn, state.within(txn) as changes:
        changes.put(row("ada", 2))
        if is_cleared:
            state.clear(txn)
        else:
            with state.within(txn) as others:
                others.put(row("ada", 3))
    assert state.get(["ada"]).to_pylist() == row("ada")
    assert state.verify() == []


def test_changes_whose_block_never_ends_are_told(
    store: quire.Store, state: keyed.KeyedState
) -> None:
    """A warning names the state."""
    with store.transaction() as txn:
        changes = [state.within(txn)]
        changes[0].put(row("ada"))
        with pytest.warns(ResourceWarning, match="'seen' were dropped"):
            changes.clear()


def test_an_error_in_the_block_drops_its_changes(
    store: quire.Store, state: keyed.KeyedState
) -> None:
    """All of them, also if the transaction goes on; one that is caught inside drops none."""
    with store.transaction() as txn:
        with suppress(KeyboardInterrupt), state.within(txn) as rows:
            rows.put(row("ada"))
            raise KeyboardInterrupt
        with state.within(txn) as rows:
            rows.put(row("bob"))
            with suppress(InvalidArgument):
                rows.put([*row("cleo"), {"name": None}])
            rows.put(row("dora"))
    assert state.get(["ada", "bob", "cleo", "dora"]).column("name").to_pylist() == ["bob", "dora"]


def test_a_state_made_anew_is_another_one(store: quire.Store, env: SimEnv) -> None:
    """Who has begun to change the one before is refused, and changes nothing of it."""
    before = keyed.open_state(store, "again", "name", "name string, size bigint", env=env)
    txn = store.transaction()
    rows = before.within(txn)
    rows.put(row("ada"))
    before.drop()
    after = keyed.open_state(store, "again", "number", "number bigint", env=env)
    rows.end()
    with pytest.raises(StateConflict):
        txn.commit()
    assert after.runs() == ()
    put(store, after, [{"number": 1}])
    assert after.get([1]).num_rows == 1


def test_a_drop_amid_changes_leaves_all_rows(store: quire.Store, state: keyed.KeyedState) -> None:
    """It is refused as a whole, and goes when they have ended."""
    put(store, state, row("ada"))
    with store.transaction() as txn:
        with state.within(txn) as rows:
            rows.put(row("bob"))
        with pytest.raises(QueueInUse, match="'seen'"):
            state.drop()
    assert state.get(["ada", "bob"]).num_rows == 2
    state.drop()
    with pytest.raises(NotFound):
        state.get(["ada"])


def test_a_transaction_of_another_store_is_refused(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState
) -> None:
    """The rows go to neither."""
    with quire.open("/other", env=env, background=False, **SMALL) as other:
        its = keyed.open_state(other, "seen", "name", "name string, size bigint", env=env)
        with pytest.raises(StateConflict, match="in another store"), other.transaction() as txn:
            state.within(txn)
        assert its.runs() == state.runs() == ()


def test_small_puts_are_sorted_a_few_times_each(
    rng: Random, store: quire.Store, state: keyed.KeyedState
) -> None:
    """What is pending are few parts, and reads as one: the later put of a key counts."""
    expected: dict[str, int] = {}
    with store.transaction() as txn, state.within(txn) as rows:
        for number in range(300):
            name = f"n{rng.randrange(120)}"
            if rng.random() < 0.2:
                rows.delete([name])
                expected.pop(name, None)
            else:
                rows.put(row(name, number))
                expected[name] = number
            if number % 7 == 0:
                names = [f"n{each}" for each in range(120)]
                found = {each["name"]: each["size"] for each in rows.get(names).to_pylist()}
                assert found == expected
        assert len(rows._parts) <= 9
    assert {r["name"]: r["size"] for b in state.rows() for r in b.to_pylist()} == expected


def test_more_than_arrow_takes_is_told(
    store: quire.Store, env: SimEnv, limits: Limits, small_runs: None
) -> None:
    """Before it is gathered; fewer keys are found."""
    texts = keyed.open_state(store, "texts", "key", "key bigint, text string", env=env)
    put(store, texts, [{"key": key, "text": "long " * 40} for key in range(40)])
    limits(MAX_FOUND_BYTES=5000)
    with pytest.raises(InvalidArgument, match="fewer keys at once"):
        texts.get(range(40))
    assert texts.get(range(5)).column("text").to_pylist() == ["long " * 40] * 5


def test_a_run_that_the_disk_has_no_room_for_leaves_no_file(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState, small_runs: None
) -> None:
    """The transaction is open after it, and what was there is there."""
    put(store, state, row("ada"))
    files = list_ids(env, f"{PATH}/ltds")
    env.capacity_bytes = env.disk.used_pages() * 4096 + 16_384
    with store.transaction() as txn:
        rows = state.within(txn)
        rows.put([{"name": f"{number} " * 40, "size": 1} for number in range(300)])
        with pytest.raises(DiskFull):
            rows.end()
        txn.rollback()
    assert list_ids(env, f"{PATH}/ltds") == files
    env.capacity_bytes = None
    assert state.get(["ada"]).num_rows == 1


@pytest.mark.parametrize("misuse", ["get", "purge", "drop"])
def test_a_queue_that_somebody_else_has_used(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState, misuse: str
) -> None:
    """What is missing is told, never taken for no rows; the state can be dropped, and made anew."""
    put(store, state, row("ada"))
    if misuse == "get":
        assert store.get("quire.keyed.seen") is not None
    elif misuse == "purge":
        store.admin.purge("quire.keyed.seen")
    else:
        store.drop_queue("quire.keyed.seen")
    fresh = keyed.open_state(store, "seen", env=env)
    told = (
        (QueueNotFound, "quire.keyed.seen")
        if misuse == "drop"
        else (
            StoreCorrupt,
            "purged.*or drop the state, and fill it anew",
        )
    )
    for use in (
        lambda: fresh.get(["ada"]),
        lambda: list(fresh.rows()),
        lambda: fresh.merge(all=True),
    ):
        with pytest.raises(told[0], match=told[1]):
            use()
    fresh.drop()
    assert (store.states.names(), store.queues()) == ([], [])
    with pytest.raises(NotFound):
        fresh.drop()
    anew = keyed.open_state(store, "seen", "name", "name string, size bigint", env=env)
    assert anew.get(["ada"]).num_rows == 0


@pytest.mark.promise(10)
def test_verify_names_what_is_missing(
    store: quire.Store, env: SimEnv, state: keyed.KeyedState, small_runs: None
) -> None:
    """A run that somebody took, one that is damaged, and a message that is of no run (KY2)."""
    put(store, state, row("ada"))
    with store.transaction() as txn, state.within(txn) as rows:
        many = [{"name": f"{number} " * 40, "size": 1} for number in range(300)]
        rows.put(many, timers=list(range(300)))
    assert state.verify() == []
    large, small = state.runs()
    path = path_of(f"{PATH}/ltds", large.file)
    store.put("quire.keyed.seen", b"mine")
    assert store.get("quire.keyed.seen") is not None
    (missing, stray) = state.verify()
    assert small.name in missing
    assert "is of no run" in stray
    env.corrupt(path, 4096 + large.size // 2, b"\xff" * 64)
    damaged, _, _ = keyed.open_state(store, "seen", env=env).verify()
    assert large.name in damaged
    env.remove(path)
    gone, _, _ = state.verify()
    assert large.name in gone
    store.close()
    with quire.open(PATH, env=env) as anew:  # which cannot read the messages behind it
        state = keyed.open_state(anew, "seen", env=env)
        assert any(large.name in each for each in state.verify())
        state.drop()
        with pytest.raises(NotFound):
            state.verify()


def test_what_is_no_transaction_is_told(store: quire.Store, state: keyed.KeyedState) -> None:
    """With what to give."""
    for bad in (None, store, 5):
        wrong: Any = bad
        with pytest.raises(InvalidArgument, match="give the transaction"):
            state.within(wrong)
        with pytest.raises(InvalidArgument, match="give the transaction"):
            state.clear(wrong)


def test_what_is_no_store_is_told() -> None:
    """As a path, which `quire.open` makes one of."""
    for bad in ("shop.quire", None, 5):
        wrong: Any = bad
        with pytest.raises(InvalidArgument, match="give the store that"):
            keyed.open_state(wrong, "seen", "name", "name string")

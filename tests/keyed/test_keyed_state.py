"""A keyed state: its rows beside a model of them, its transactions, merges, times and errors."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

import quire
from quire import keyed
from quire.errors import InvalidArgument, NotFound, StateConflict, StoreCorrupt
from quire.keyed import keyed_changes, run_merge
from quire.keyed.keyed_rows import KeyedRows, newest_of
from quire.keyed.run_merge import deepest
from quire.ltds import list_ids, path_of
from quire.testing import SimEnv
from tests.keyed.conftest import PATH, SMALL
from tests.kit.limits import Limits

SCHEMA = "shop int, customer string, total bigint, note binary"
Key = tuple[int, str]


def sums(store: quire.Store, env: SimEnv, **options: Any) -> keyed.KeyedState:
    """A state of sums by name."""
    return keyed.open_state(store, "sums", "name", "name string, total bigint", env=env, **options)


def put(store: quire.Store, state: keyed.KeyedState, **totals: int) -> None:
    """Put rows with one transaction."""
    with store.transaction() as txn, state.within(txn) as rows:
        rows.put([{"name": name, "total": total} for name, total in totals.items()])


def shown(state: keyed.KeyedState) -> dict[str, int]:
    """All rows of `sums`."""
    return {row["name"]: row["total"] for batch in state.rows() for row in batch.to_pylist()}


class KeyedHistory:
    """A state and a dict: puts, deletions, times, rollbacks, merges, checkpoints, crashes."""

    def __init__(self, rng: Random, most_runs: int = 3) -> None:
        self.rng = rng
        self.most_runs = most_runs
        self.env = SimEnv(rng.randrange(1 << 32))
        self.rows: dict[Key, tuple[int, bytes | None, int]] = {}
        self.open()

    def open(self) -> None:
        """Recover the store."""
        self.store = quire.open(PATH, env=self.env, background=False, **SMALL)
        self.state = keyed.open_state(
            self.store, "model", ["shop", "customer"], SCHEMA, env=self.env
        )

    def step(self) -> None:
        """Do something, and compare."""
        change, others = self.change, (self.wait, self.merge, self.checkpoint, self.crash)
        step = change if self.rng.random() < 0.7 else self.rng.choice(others)
        step()
        keys = self.drawn(30)
        assert self.found(self.state.get(keys)) == self.expected(keys, self.rows)
        assert deepest(self.state.runs())[0] <= self.most_runs  # (MR2)
        if self.rng.random() < 0.3:
            self.compare()

    def drawn(self, most: int) -> list[Key]:
        """Some keys, also of one hash or another, also twice."""
        numbers = [self.rng.randrange(60) for _ in range(self.rng.randrange(most))]
        return [(number % 3, f"c{number}") for number in numbers]

    def change(self) -> None:
        """Read, delete and put in a transaction, which commits or not."""
        rng, keys = self.rng, self.drawn(self.rng.choice([1, 5, 40]))
        ttl = rng.choice([None, None, 10.0, 1000.0])
        deleted, put = keys[: len(keys) // 3], keys[len(keys) // 4 :]
        after = dict(self.rows)
        with self.store.transaction() as txn:
            with self.state.within(txn) as rows:
                assert self.found(rows.get(self.table(keys))) == self.expected(keys, after)
                rows.delete(self.table(deleted))
                for key in deleted:
                    after.pop(key, None)
                gone = 1 << 62 if ttl is None else self.env.now_us() + int(ttl * 1e6)
                values = [(rng.randrange(99), rng.choice([None, rng.randbytes(40)])) for _ in put]
                rows.put([
                    {"shop": key[0], "customer": key[1], "total": total, "note": note}
                    for key, (total, note) in zip(put, values, strict=True)
                ], ttl)  # fmt: skip
                after |= {k: (*value, gone) for k, value in zip(put, values, strict=True)}
                assert self.found(rows.get(self.table(keys))) == self.expected(keys, after)
            if rng.random() < 0.2:
                txn.rollback()
                return
        self.rows = after

    def wait(self) -> None:
        """Some rows expire."""
        self.env.advance(self.rng.choice([1, 9, 500]))

    def merge(self) -> None:
        """Merge some or all; then nothing that is deleted takes any space."""
        everything = self.rng.random() < 0.5
        self.state.merge(all=everything)
        if everything:
            assert sum(run.rows for run in self.state.runs()) == len(self.living())

    def checkpoint(self) -> None:
        """Runs leave the journal."""
        self.store.admin.checkpoint()

    def crash(self) -> None:
        """The power fails."""
        self.env = self.env.crash(outcome="lost")
        self.open()

    def compare(self) -> None:
        """All rows."""
        found = [row for batch in self.state.rows() for row in self.found(batch)]
        living = [(*key, *row[:2]) for key, row in self.living().items()]
        assert sorted(found, key=repr) == sorted(living, key=repr)

    def end(self) -> None:
        """The store is whole."""
        self.compare()
        report = self.store.admin.verify()
        assert report.ok, report.findings
        self.store.close()

    def living(self) -> dict[Key, tuple[int, bytes | None, int]]:
        """The rows that have not expired."""
        now = self.env.now_us()
        return {key: row for key, row in self.rows.items() if row[2] > now + 1000}

    def expected(self, keys: list[Key], rows: dict[Key, Any]) -> list[tuple[Any, ...]]:
        """Those of the keys."""
        now = self.env.now_us()
        return [(*k, *rows[k][:2]) for k in keys if k in rows and rows[k][2] > now]

    @staticmethod
    def found(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        """Rows as values."""
        return [tuple(row.values()) for row in batch.to_pylist()]

    @staticmethod
    def table(keys: list[Key]) -> pa.Table:
        """Keys, their columns in another order."""
        schema = pa.schema([("customer", pa.string()), ("shop", pa.int32())])
        return pa.Table.from_pylist([{"shop": a, "customer": b} for a, b in keys], schema=schema)


def test_rows_are_those_of_a_model(rng: Random, rounds: int, small_runs: None) -> None:
    """What is read is what a dict says, whatever happens in between (KC1, KC2, KY1, MR1)."""
    for _ in range(max(1, rounds // 6)):
        history = KeyedHistory(rng)
        for _ in range(50):
            history.step()
        history.end()


def test_rows_are_those_of_a_model_over_merges_by_range(
    rng: Random, rounds: int, small_ranges: None
) -> None:
    """Merges range by range: runs of which a part counts, and some of a few ranges (MR3)."""
    for _ in range(max(1, rounds // 6)):
        history = KeyedHistory(rng, 6)
        for _ in range(50):
            history.step()
        history.end()


@pytest.mark.parametrize("fault", ["order", "deletions"])
def test_merges_that_are_wrong_are_noticed(
    rng: Random, small_runs: None, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The model is one: it sees rows that come again, and older ones in the place of newer ones."""
    if fault == "order":
        right = newest_of
        monkeypatch.setattr(
            run_merge, "newest_of", lambda parts, key: right([*reversed(parts)], key)
        )
    else:
        monkeypatch.setattr(KeyedRows, "living_at", lambda self, now_us: self.expires > now_us)
    with pytest.raises(AssertionError):
        test_rows_are_those_of_a_model(rng, 60, None)


def test_the_first_of_two_changes_is_committed(store: quire.Store, env: SimEnv) -> None:
    """The other one raises StateConflict, and so does who began to read before (KM2, KC1)."""
    state = sums(store, env)
    put(store, state, ada=1)
    first, second = store.transaction(), store.transaction()
    with state.within(first) as rows, state.within(second) as others:
        assert rows.get(["ada"]).num_rows == others.get(["ada"]).num_rows == 1
        rows.put([{"name": "ada", "total": 2}])
        others.put([{"name": "bob", "total": 3}])
    first.commit()
    with pytest.raises(StateConflict):
        second.commit()
    assert shown(state) == {"ada": 2}


def test_a_merge_is_in_nobodys_way(
    store: quire.Store, env: SimEnv, small_runs: None, limits: Limits
) -> None:
    """Who has begun before it reads the same rows after it, and commits (KY1, KY3)."""
    state = sums(store, env)
    for number in range(3):
        put(store, state, **{f"n{number}_{each}": each for each in range(60)})
    other = sums(store, env)
    with store.transaction() as txn, other.within(txn) as rows:
        assert len(rows.get(["n0_1"])) == 1
        before = state.runs()
        assert state.merge(all=True)
        assert set(state.runs()).isdisjoint(before)
        store.admin.checkpoint()
        assert rows.get([f"n{n}_7" for n in range(3)]).column("total").to_pylist() == [7] * 3
        rows.put([{"name": "n0_1", "total": -1}])
    assert shown(state)["n0_1"] == -1
    found = other.rows()
    first = next(found)
    assert state.merge(all=True)
    rest = [row for batch in found for row in batch.to_pylist()]
    assert len(first) + len(rest) == 180  # a lease keeps what is read


def test_rows_that_were_merged_and_changed_meanwhile(
    store: quire.Store, env: SimEnv, small_runs: None
) -> None:
    """A transaction that cannot read what was there any more raises StateConflict (KC1)."""
    state = sums(store, env)
    put(store, state, **{f"n{each}": each for each in range(60)})
    other = sums(store, env)
    txn = store.transaction()
    rows = other.within(txn)
    put(store, state, n1=7)
    state.merge(all=True)
    with pytest.raises(StateConflict, match="begin again"):
        rows.get(["n1"])
    txn.rollback()
    assert other.get(["n1"]).to_pylist() == [{"name": "n1", "total": 7}]


def test_rows_expire(store: quire.Store, env: SimEnv) -> None:
    """By the time of the state, or of their put; a later put begins anew."""
    state = sums(store, env, ttl=60)
    put(store, state, ada=1, bob=2)
    with store.transaction() as txn, state.within(txn) as rows:
        rows.put([{"name": "cleo", "total": 3}], ttl=1000)
    env.advance(50)
    put(store, sums(store, env), bob=4)  # which says nothing of the time
    env.advance(20)
    assert shown(state) == {"bob": 4, "cleo": 3}
    assert [row["name"] for row in state.get(["ada", "bob", "cleo"]).to_pylist()] == ["bob", "cleo"]
    state.merge(all=True)
    assert [run.rows for run in state.runs()] == [2]
    env.advance(1000)
    state.merge(all=True)
    assert state.runs() == ()
    assert shown(state) == {}


def test_columns_may_be_added(store: quire.Store, env: SimEnv) -> None:
    """Older rows have nulls there; whoever has the state open sees them; nothing else changes."""
    state = sums(store, env)
    put(store, state, ada=1)
    grown = "name string, total bigint, city string"
    wider = keyed.open_state(store, "sums", "name", grown, env=env)
    assert state.schema == wider.schema
    with store.transaction() as txn, wider.within(txn) as rows:
        rows.put([{"name": "bob", "total": 2, "city": "Bonn"}])
    expected = [
        {"name": "ada", "total": 1, "city": None},
        {"name": "bob", "total": 2, "city": "Bonn"},
    ]
    assert state.get(["ada", "bob"]).to_pylist() == expected
    state.merge(all=True)
    assert state.get(["ada", "bob"]).to_pylist() == expected
    assert keyed.open_state(store, "sums", env=env).schema == wider.schema
    older = sums(store, env)  # of a program that does not know the new column
    assert older.schema == wider.schema
    put(store, older, cleo=3)
    assert older.get(["cleo"]).to_pylist() == [{"name": "cleo", "total": 3, "city": None}]
    for schema, message in [
        ("name string, total int", "columns stay as they are"),
        ("name string, total bigint, city string, size int not null", "not null"),
    ]:
        with pytest.raises(InvalidArgument, match=message):
            keyed.open_state(store, "sums", "name", schema, env=env)
    with pytest.raises(InvalidArgument, match="the key stays"):
        keyed.open_state(store, "sums", ["name", "total"], grown, env=env)


def test_a_state_goes_with_all_its_rows(store: quire.Store, env: SimEnv, small_runs: None) -> None:
    """Its queue, its values and its files; one of its name is another one."""
    state = sums(store, env)
    put(store, state, **{f"n{each}": each for each in range(60)})
    state.drop()
    assert store.states.names() == []
    assert store.queues() == []
    with pytest.raises(NotFound, match="there is no keyed state 'sums'"):
        state.get(["n1"])
    with pytest.raises(NotFound):
        keyed.open_state(store, "sums", env=env)
    assert shown(sums(store, env)) == {}
    put(store, sums(store, env), ada=1)
    store.states.drop("quire.keyed.sums")  # as far as a drop came that was killed
    assert shown(sums(store, env)) == {}
    assert store.queue("quire.keyed.sums").messages == 0


@pytest.mark.promise(10)
def test_a_damaged_run_is_named(store: quire.Store, env: SimEnv, small_runs: None) -> None:
    """By whatever meets it, and by verify; nothing is read as if it were right (KY2, KF1)."""
    state = sums(store, env)
    put(store, state, **{f"n{each}": each for each in range(60)})
    (run,) = state.runs()
    assert list_ids(env, f"{PATH}/ltds") == [run.file]
    env.corrupt(path_of(f"{PATH}/ltds", run.file), 4096, b"\xff" * 600)
    for use in (
        lambda: state.get([f"n{each}" for each in range(60)]),
        lambda: list(state.rows()),
        lambda: state.merge(all=True),
        lambda: sums(store, env).get([f"n{each}" for each in range(60)]),
    ):
        with pytest.raises(StoreCorrupt, match=f"{run.file:016x}"):
            use()
    assert any(f"{run.file:016x}" in finding for finding in store.admin.verify().findings)
    env.remove(path_of(f"{PATH}/ltds", run.file))
    with pytest.raises(StoreCorrupt, match=f"{run.file:016x}"):
        list(sums(store, env).rows())
    with pytest.raises(StoreCorrupt, match="restore the store"):
        sums(store, env).merge(all=True)


def test_what_the_manifest_cannot_be_is_told(store: quire.Store, env: SimEnv) -> None:
    """Values that somebody else has written there (KM1)."""
    state = sums(store, env)
    put(store, state, ada=1)
    value = store.states.get("quire.keyed.sums", state.runs()[0].key)
    assert value is not None
    for key, bad in [("version", b"x"), ("run 9.0", b"{}")]:
        with store.transaction() as txn:
            txn.set_value("quire.keyed.sums", key, bad)
        with pytest.raises(StoreCorrupt, match="not readable"):
            state.runs()
        with store.transaction() as txn:
            txn.set_value("quire.keyed.sums", key, b"1" if key == "version" else None)
    with store.transaction() as txn:
        txn.set_value("quire.keyed.sums", "run 2.0", value)
    with pytest.raises(StoreCorrupt, match="both have version"):
        state.runs()


def test_what_cannot_be_is_refused(store: quire.Store, env: SimEnv, limits: Limits) -> None:
    """Each with what to do."""

    def refused(match: str, key: Any = "k", schema: Any = "k int, v int", **more: Any) -> None:
        with pytest.raises(InvalidArgument, match=match):
            keyed.open_state(store, more.pop("name", "bad"), key, schema, env=env, **more)

    refused("put them first", "v")
    refused("put them first", [])
    refused("say which columns", None)
    refused("up to 180 characters", name="x" * 190)
    refused("no nested columns", schema="k int, v array<int>")
    refused("make it a string", schema="k double, v int")
    refused("give a pyarrow Schema", schema=5)
    refused("say its schema", schema=None)
    with pytest.raises(InvalidArgument, match="that this process sees"):
        keyed.open_state(store, "bad", "k", "k int")
    refusal = pytest.raises(InvalidArgument, match="that this process sees")
    with quire.open(":memory:") as memory, refusal:
        keyed.open_state(memory, "bad", "k", "k int")
    assert store.queues() == []
    state = sums(store, env)
    with store.transaction() as txn:
        rows = state.within(txn)
        for bad, match in [
            ([{"nam": "x"}], "nam"),
            ([{"name": None, "total": 1}], "name"),
            (pa.table({"name": ["x"], "total": ["y"]}), "total"),
        ]:
            with pytest.raises(InvalidArgument, match=match):
                rows.put(bad)
        with pytest.raises(InvalidArgument, match="is missing"):
            rows.get(pa.table({"total": [1]}))
        with pytest.raises(InvalidArgument):
            rows.get([5])
        with pytest.raises(InvalidArgument, match="as a tuple"):
            keyed.open_state(store, "two", ["a", "b"], "a int, b int", env=env).get([(1, 2, 3)])
        limits(MAX_PENDING_BYTES=1000)
        with pytest.raises(InvalidArgument, match="go on in another one"):
            rows.put([{"name": f"n{each}", "total": each} for each in range(100)])
        rows.put([{"name": "ada", "total": 1}])
        rows.put([{"name": "ada", "total": 2}])
        rows.end()
        with pytest.raises(InvalidArgument, match="has ended"):
            rows.get(["ada"])
        with pytest.raises(StateConflict, match="one `within` block"):
            state.within(txn)
    assert shown(state) == {"ada": 2}
    assert keyed_changes.KeyedChanges.__name__ in repr(rows)


def test_all_rows_go_with_a_commit(store: quire.Store, env: SimEnv) -> None:
    """A cleared state goes on; a change that began before is refused, and so is a late clear."""
    state = sums(store, env)
    for number in range(5):
        put(store, state, ada=number, bob=number)
    with store.transaction() as txn:
        state.clear(txn)
        txn.rollback()
    assert shown(state) == {"ada": 4, "bob": 4}
    late = store.transaction()
    with state.within(late) as rows:
        rows.put([{"name": "ada", "total": 9}])
    clear(store, state)
    with pytest.raises(StateConflict):
        late.commit()
    assert shown(state) == {}
    assert state.runs() == ()
    put(store, state, cleo=1)
    late = store.transaction()
    state.clear(late)
    put(store, state, dora=2)
    with pytest.raises(StateConflict):
        late.commit()
    assert shown(state) == {"cleo": 1, "dora": 2}


def clear(store: quire.Store, state: keyed.KeyedState) -> None:
    """Delete all rows with one transaction."""
    with store.transaction() as txn:
        state.clear(txn)

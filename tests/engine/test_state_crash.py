"""State: whole or not at all after any failure, folded alike by all, and told by those who look."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from quire import dump
from quire.engine import EmbeddedStore as Store
from quire.engine.commits.pending_sections import PendingSection, pack_sections
from quire.engine.records import format
from quire.engine.records.key_values import KeyValues
from quire.engine.state.catalog import STATE
from quire.errors import DiskFull, StateConflict, StoreCorrupt
from quire.file_dump.items import Finding, as_json
from quire.file_dump.words import in_words
from quire.journal import pack_record
from tests.engine.crashing.definitions import States, count, fill_states, make_states, prepare
from tests.engine.crashing.parts import try_parts
from tests.engine.workload import PATH, new_machine, open_store

Step = Callable[[Store], object]


def test_canary_of_a_record_without_its_values(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """One whose section is applied when it is committed, and is not in the record, is caught.

    A recovery may find out first: a later record drops a value that the ones before do not set.
    """

    def without_values(sections: Sequence[PendingSection], *attachment: Any) -> Any:
        return pack_sections(
            [each for each in sections if each.content.kind != format.VALUES], *attachment
        )

    monkeypatch.setattr("quire.engine.commits.committer.pack_sections", without_values)
    with pytest.raises((AssertionError, StoreCorrupt)):
        try_parts(seed, States)


def test_a_full_disk(seed: int) -> None:
    """What sets a state is refused, and taken when there is room; reading alone goes on."""
    env = new_machine(seed)
    with open_store(env) as store:
        make_states(store)
        fill_states(store)
        env.capacity_bytes = env.used_bytes()
        refused = 0
        for _ in range(100):
            try:
                with store.transaction() as txn:
                    txn.set_value("step", "n", b"7" * 8000)
            except DiskFull:
                refused += 1
        assert refused
        assert store.get("in") is not None
        assert store.states.drop("step") == 1
        env.capacity_bytes = None
        count(store)
        assert store.states.items("step") == {"bb": b"seen", "n": b"2"}
        assert store.admin.verify().ok


def test_keys_do_not_rewrite_each_other() -> None:
    """A commit that changes one of many writes that one, also when it is one of a checkpoint's."""
    env = new_machine(0)
    with open_store(env, segment_bytes=4 << 20) as store:
        with store.transaction() as txn:
            for number in range(2000):
                txn.set_value("step", f"key {number}", bytes(100))
        store.admin.checkpoint()
        with store.transaction() as txn:
            txn.set_value("step", "key 7", bytes(90))
        records = [as_json(i) for i in dump(PATH, env=env, journal=True) if i.item == "record"]
        assert records[-1]["name"] == "COMMIT"
        assert records[-1]["bytes"] < 300


def test_within_one_group() -> None:
    """Changes that are written together see each other in their order."""
    with open_store(new_machine(0)) as store:
        outcomes: list[str] = []

        def change(value: bytes | None, *, reads: bool) -> Callable[[], None]:
            txn = store.transaction()
            if reads:
                txn.get_value("s", "k")
            txn.set_value("s", "k", value)

            def commit() -> None:
                try:
                    txn.commit()
                    outcomes.append("committed")
                except StateConflict:
                    outcomes.append("refused")

            return commit

        groups = store.status()["groups"]
        store.together([
            change(b"1", reads=True), change(b"2", reads=True), change(None, reads=False),
            change(b"3", reads=False),
        ])  # fmt: skip
        assert store.status()["groups"] == groups + 1
        assert sorted(outcomes) == ["committed"] * 3 + ["refused"]
        assert store.states.items("s") == {"k": b"3"}
        assert store.status()["state"]["keys"] == 1


def test_those_who_look_are_told() -> None:
    """The catalog lists it where it is asked for, a dump of the journal what was set."""
    env = new_machine(0)
    store = open_store(env)
    make_states(store)
    fill_states(store)
    count(store)
    prepare(store, "x1")
    assert {item.type for item in store.admin.catalog()} == {"queue"}
    assert [item.body["key"] for item in store.admin.catalog(STATE)] == ["n", "a"]
    store._lock.release()
    items = list(dump(PATH, env=env.kill(), journal=True))
    records = [record for item in items if "sets" in (record := as_json(item))]
    sets = [[(one["key"], one["value"]) for one in record["sets"]] for record in records]
    assert sets == [[("n", "1"), ("a", "seen")], [("x1", "prepared"), ("a", None)]]
    assert [record.get("xid") for record in records] == [None, "x1"]
    assert json.dumps(records)
    words = [line for item in items for line in in_words(item)]
    assert "    set: number 2, name 'step', key 'a', deleted" in words
    summary = list(dump(PATH, env=env.kill()))
    assert not [item for item in summary if isinstance(item, Finding)]


CONTRADICTIONS = {
    "no value": b'[["state",1,{"name":"s","key":"k"}]]',
    "no text": b'[["state",1,{"name":"s","key":"k","value":5}]]',
    "no base64": b'[["state",1,{"name":"s","key":"k","value":"?"}]]',
    "no number": b'[["state",0,{"name":"s","key":"k","value":""}]]',
    "not there": b'[["state",9,null]]',
    "another's": b'[["state",1,{"name":"s","key":"other","value":""}]]',
    "there already": b'[["state",2,{"name":"s","key":"there","value":""}]]',
}


@pytest.mark.promise(10)
@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_contradiction_is_damage(what: str) -> None:
    """A record that no release wrote is told with its place, by the recovery and by a dump."""
    env = new_machine(0)
    store = open_store(env)
    with store.transaction() as txn:
        txn.set_value("s", "there", b"")
    store._opened.journal.write_group([pack_record(format.CATALOG, 0, CONTRADICTIONS[what])])
    store._lock.release()
    env = env.kill()
    with pytest.raises(StoreCorrupt, match="record at LSN"):
        open_store(env)
    findings = [item for item in dump(PATH, env=env) if isinstance(item, Finding)]
    assert [item.damage for item in findings] == [True]


def test_a_value_that_is_replaced_is_there_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks in the midst of a commit, without a lock, finds the value of before."""
    seen: list[bytes | None] = []
    with open_store(new_machine(1)) as store:
        values = store._context.state.values
        real = KeyValues._count

        def count_and_look(*arguments: Any) -> None:
            seen.append(values.value("step", "n"))
            real(*arguments)
            seen.append(values.value("step", "n"))

        for number in range(3):
            with store.transaction() as txn:
                txn.set_value("step", "n", b"%d" % number)
            monkeypatch.setattr(KeyValues, "_count", count_and_look)
        assert set(seen) == {b"0", b"1"}

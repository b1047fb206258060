"""Faults that are put into the engine, one at a time: what the tests look at tells each of them.

Sound, the same checks find nothing. They are those of the other tests: number, hash and contents of
`verify`, its findings, and what is in flight once nobody has anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.commits.sequencer import Sequencer
from quire.engine.queues.queue import Queue
from quire.engine.records import format
from quire.engine.records.commit_record import Read
from quire.engine.state import state_hash
from quire.engine.state.durable_state import DurableQueue
from quire.engine.state.fold import Fold
from quire.engine.state.sections.kinds import KINDS
from quire.errors import QuireError
from quire.testing import SimEnv
from tests.engine.test_local_tail import OPTIONS, fill_with_a_tail_of_another
from tests.engine.test_sections_crash import WORKLOADS, make
from tests.engine.workload import PATH, new_machine, open_store

Patch = pytest.MonkeyPatch

# An attachment only gives a name to what the parts say.
APPLIED = [kind for kind in KINDS if kind != format.ATTACHMENT]


def nothing(*_: Any, **__: Any) -> None:
    """In the stead of what would have been done."""


def twice(method: Callable[..., Any]) -> Callable[..., Any]:
    """It is done again, right after it was."""

    def done(*values: Any, **named: Any) -> Any:
        method(*values, **named)
        return method(*values, **named)

    return done


def crashed_after(kind: int, seed: int) -> SimEnv:
    """A machine whose store's last record has a section of the kind."""
    env = new_machine(seed)
    make(env)
    store = open_store(env)
    WORKLOADS[kind](store)
    store._context.sequencer.sync()
    crashed = env.kill()
    store.abandon("its machine has crashed")
    return crashed


def told(env: SimEnv) -> tuple[Any, ...]:
    """What the store says of itself, opened anew; its refusal, where it does not open."""
    with suppress(QuireError), open_store(env.kill()) as store:
        checked = store.admin.verify().checked
        return checked["number"], checked["state_hash"]
    return ("refused",)


def misses(kind: int, seed: int) -> bool:
    """Whether a recovery that leaves the section out is told from one that does not."""
    env = crashed_after(kind, seed)
    with pytest.MonkeyPatch.context() as patch:
        sound = told(env)
        if kind == format.HELD:  # which is folded with its record
            patch.setattr(Fold, "prepare", nothing)
        else:
            patch.setattr(KINDS[kind], "fold", nothing)
        return told(env) != sound


@pytest.mark.parametrize("kind", APPLIED)
def test_a_section_that_recovery_leaves_out_is_told(kind: int, seed: int) -> None:
    """The state has another hash, or contradicts what comes after."""
    assert misses(kind, seed)


@pytest.mark.parametrize(
    ("kind", "table", "name"),
    [
        (format.VALUES, "OF_STORE", "catalog"),
        (format.HELD, "OF_STORE", "prepared"),
        (format.DELIVERIES, "OF_SUBSCRIPTION", "attempts"),
        (format.FAILURES, "OF_SUBSCRIPTION", "attempts"),
        (format.NUMBERS, "OF_SUBSCRIPTION", "numbers"),
    ],
)
def test_a_section_without_its_part_of_the_hash_is_told(
    kind: int, table: str, name: str, seed: int, monkeypatch: Patch
) -> None:
    """By the test above, which finds no difference then."""
    left = {each: tell for each, tell in getattr(state_hash, table).items() if each != name}
    monkeypatch.setattr(state_hash, table, left)
    assert not misses(kind, seed)


def differences(env: SimEnv) -> Sequence[str]:
    """What does not agree after some puts and gets, and after these were recovered."""
    store = open_store(env, inline_limit_bytes=2000)
    store.create_queue("work", kind="work")
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "a")
    store.subscribe("topic", "b")
    for size in (10, 9000):
        for name in ("work", "work", "topic"):
            store.put(name, bytes(size))
        with store.transaction() as txn:
            txn.put_many("work", [bytes(size)] * 3)
            txn.get("work")
            txn.get("topic/a")
    with store.transaction() as txn:
        txn.get_many("work", 2)
    live, number = found_in(store), store.admin.verify().checked["number"]
    crashed = env.kill()
    store.abandon("its machine has crashed")
    with open_store(crashed) as store:
        if store.admin.verify().checked["number"] != number:
            live.append("another number")
        return live + found_in(store)


def found_in(store: Store) -> list[str]:
    """Findings of `verify`, and what is in flight though nobody has anything."""
    found = list(store.admin.verify().findings)
    for queue in store._state().by_name():
        found += [f"{queue.name}: in flight" for s in queue.subscriptions.values() if s.delivered]
    return found


def is_told(seed: int) -> bool:
    """Whether the fault is: by an error, or by what does not agree."""
    try:
        return bool(differences(new_machine(seed)))
    except (QuireError, AssertionError, ValueError):
        return True


def test_without_a_fault_nothing_is_told(seed: int) -> None:
    """Else the tests below would show nothing."""
    assert not differences(new_machine(seed))


@pytest.mark.parametrize("effect", ["appended", "placed", "acknowledged"])
def test_an_effect_that_is_applied_twice_is_told(
    effect: str, seed: int, monkeypatch: Patch
) -> None:
    """Space or pages are counted, taken or freed once more than there are."""
    monkeypatch.setattr(Queue, effect, twice(getattr(Queue, effect)))
    assert is_told(seed)


def refusal(env: SimEnv) -> str:
    """Why the store does not open, if it does not."""
    try:
        Store.open(PATH, env=env.kill(), **OPTIONS).close()
    except QuireError as error:
        return str(error)
    return ""


def test_a_tail_of_another_machine_that_is_taken_for_places_is_told(
    seed: int, monkeypatch: Patch
) -> None:
    """A store that does not look at its mark opens, or complains of something else."""
    env = fill_with_a_tail_of_another(seed)
    assert "another machine's disk" in refusal(env)
    monkeypatch.setattr("quire.engine.state.fold.mark_of", nothing)
    assert "another machine's disk" not in refusal(env)


def test_a_read_that_is_applied_by_the_wrong_rule_is_told(seed: int, monkeypatch: Patch) -> None:
    """What was got as if it had only been passed, and a topic's message as if it were a queue's."""
    acknowledged = Queue.acknowledged
    with monkeypatch.context() as patch:
        patch.setattr(
            Queue, "acknowledged", lambda queue, read, *more: acknowledged(
                queue, Read(*read[:4]), *more
            )
        )  # fmt: skip
        assert is_told(seed)

    def release(queue: DurableQueue, position: int) -> bool:
        queue.released.add(position, position + 1)
        return True

    monkeypatch.setattr(DurableQueue, "_read_one", release)
    assert is_told(seed)


def test_a_number_that_is_counted_twice_is_told(seed: int, monkeypatch: Patch) -> None:
    """Live it is another one than recovery counts."""
    monkeypatch.setattr(Sequencer, "changes", property(lambda own: 2 * own._alone + own._grouped))
    assert is_told(seed)

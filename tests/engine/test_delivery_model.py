"""Drawn histories (see `delivery_history`) against the model: every order and rule together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quire.block import Block
from quire.definitions import order_code
from quire.engine.delivery import position_states, selection
from quire.engine.delivery.delivery_table import RULES, Event, Rule, transitions
from quire.engine.delivery.delivery_table import DeliveryState as State
from quire.engine.delivery.ordered_groups import Groups
from quire.engine.delivery.selection import Selection
from quire.engine.queues.subscription import Subscription
from quire.engine.reading import indexing
from quire.engine.reading.ranks import attribute_ranks
from quire.engine.state.attempts import Attempts
from quire.errors import QueueInUse, StoreFailed
from quire.testing import sim_env
from tests.engine.delivery_history import BY_CODE, TABLE, by_sender, run_many


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only when it is told to; and the code of an order is registered."""
    monkeypatch.setattr(sim_env, "STEP_US", 0)
    monkeypatch.setitem(order_code._registered, BY_CODE, by_sender)


@pytest.mark.cases(4)
@pytest.mark.fuzz
@pytest.mark.promise(1, 2)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_promise_1_2_every_message_is_where_the_model_says(seed: int, rounds: int) -> None:
    """Of queues in memory, where many histories are soon told."""
    run_many(range(seed, seed + 4 * rounds))


@pytest.mark.fuzz
@pytest.mark.promise(1, 2)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_promise_1_2_the_same_after_kills(seed: int, rounds: int) -> None:
    """Of queues on the disk: waits, what failed, and sequences go on where they were."""
    run_many(range(seed, seed + rounds), volatile=False)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_histories_that_have_differed() -> None:
    """A commit that reads several of a sender at once; what comes again as another one is due."""
    run_many(range(1_065_368, 1_065_369))
    run_many(range(9_000_133, 9_000_134))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_histories_that_have_differed_after_kills() -> None:
    """A prepared transaction was rolled back since the checkpoint: no record counts that."""
    for seed in (3_465_470_526, 3_384_724_631, 2_076_674_587):
        run_many(range(seed, seed + 1), volatile=False)


@pytest.mark.cases(4)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_each_state_and_event_of_the_table_happens() -> None:
    """So the histories hold the engine to something."""
    seen = run_many(range(150)) | run_many(range(50), volatile=False)
    told = {(was, event, now) for was, events, now in seen for event in events}
    rows = {(was, event, now) for was, event, now in told if now in TABLE.get((was, event), ())}
    assert {state for row in rows for state in (row[0], row[2])} >= set(State) - {
        State.UNSEEN,
        State.UNWANTED,
    }
    # What is looked at, or not asked for, is so before a step ends, and what is picked is read.
    assert {event for _, event, _ in rows} >= set(Event) - {Event.LOOK, Event.PICK}


# Canaries: what is wrong with the rules is seen in some hundred histories


def comes_never(_: Subscription, __: int) -> bool:
    """A transition left out: what was rejected does not come again."""
    return False


def waits_not(_: Groups, __: int) -> None:
    """A group let go early: it goes on though one of it was rejected, and comes later."""


def expires_not(_: Selection, __: int) -> bool:
    """What has expired is delivered."""
    return True


def hidden_no_more(_: Attempts, now_us: int) -> list[tuple[int, int, int]]:
    """A wait forgotten: what is recorded of it counts for nothing after a restart."""
    return []


def last_first(block: Block, start: int, stop: int, name: str, *, numeric: bool) -> Any:
    """An order's tie turned round: of equal rank the later one comes first."""
    ranks = attribute_ranks(block, start, stop, name, numeric=numeric)
    return np.array([(rank << 20) - row for row, rank in enumerate(ranks)], object)


def counts_twice(attempts: Attempts, start: int, end: int) -> None:
    """What is noted as delivered counts as two deliveries: it is spent too soon."""
    for _ in range(2):
        attempts._count(start, end, 1, 0, None)


# Where two rules follow each other at once: what was taken is spent, what is to go is read or comes
# back. What is rejected is spent but by another rule of the queue meanwhile: that is too rare here.
OF_TWO = {(Event.TAKE, State.SPENT), (Event.GO, State.SPENT), (Event.GO, State.READ)}
RARE = {(Event.COME, State.SPENT)}
# By these what is known is made anew, not changed.
ANEW = (Event.ALTER, Event.MOVE, Event.OPEN)
LEFT_OUT = [
    rule for rule in RULES
    if rule.event not in ANEW and (rule.event, rule.after[0]) not in OF_TWO | RARE
]  # fmt: skip


@pytest.mark.cases(8)
@pytest.mark.parametrize(
    "left_out", LEFT_OUT, ids=lambda rule: f"{rule.event.name}-{rule.after[0].name}"
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_each_transition_is_needed(left_out: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it in the table, the engine refuses what is right, or does what the model does not.

    What is refused raises and changes nothing; in the midst of a step it is another error at times.
    """
    made = transitions(rule for rule in RULES if rule is not left_out)
    for module in (selection, position_states):
        monkeypatch.setattr(module, "TRANSITIONS", made)
    monkeypatch.setattr(selection, "_TAKEN", made[Event.TAKE][State.IN_FLIGHT.number])
    monkeypatch.setattr(selection, "_PASSED", made[Event.READ][State.READ.number])
    monkeypatch.setattr(selection, "_PICKED", made[Event.PICK][State.IN_FLIGHT.number])
    with pytest.raises((AssertionError, StoreFailed, QueueInUse)):
        run_many(range(300))


FAULTS: dict[str, tuple[object, str, object]] = {
    "left out": (Subscription, "bring_back", comes_never),
    "let go": (Groups, "wait_for", waits_not),
    "expired": (Selection, "_expire", expires_not),
    "forgotten": (Attempts, "hidden", hidden_no_more),
    "turned round": (indexing, "attribute_ranks", last_first),
    "twice": (Attempts, "add", counts_twice),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_fault_of_the_rules_is_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever it is."""
    place, name, wrong = FAULTS[fault]
    monkeypatch.setattr(place, name, wrong)
    with pytest.raises(AssertionError):
        run_many(range(600), volatile=fault != "forgotten")

"""Explanations beside the table of delivery: every state has one, and drawn histories agree (WY1).

After each step of a history each message that is kept is asked about, by its id, and each source
for its next one. What is told is held to the model of delivery, which knows of no explanations.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from quire.definitions import order_code
from quire.engine import EmbeddedStore as Store
from quire.engine.delivery import delivery_table
from quire.engine.delivery.delivery_table import DeliveryState as State
from quire.engine.inspection import explaining
from quire.engine.inspection.explaining import EXPLAINED, NEXT_STATES
from quire.engine.reading.block_reader import BlockReader
from quire.reports import explanation
from quire.reports.explanation import Explanation, UndeliveredReason
from quire.testing import SimEnv, sim_env
from tests.engine import delivery_history
from tests.engine.delivery_history import BY_CODE, History, by_sender, said_state
from tests.engine.delivery_model import Model, Place
from tests.kit.limits import Limits

R = UndeliveredReason
# By the state of a message, what may be told of it.
ALLOWED: dict[State, set[UndeliveredReason]] = {
    State.UNSEEN: {R.NOT_LOOKED_AT, R.QUEUE_UNUSABLE, R.QUEUE_STOPPED, R.EXCLUSIVE},
    State.WAITING: {R.SEQUENCE},
    State.SCHEDULED: {R.SCHEDULED},
    State.AVAILABLE: {
        R.READY, R.BEHIND, R.EXCLUSIVE, R.GROUP_IN_FLIGHT, R.GROUP_RETRY, R.SPENT,
        R.QUEUE_UNUSABLE, R.QUEUE_STOPPED,
    },
    State.IN_FLIGHT: {R.IN_FLIGHT, R.PREPARED},
    State.LATE: {R.IN_FLIGHT, R.PREPARED},
    State.REJECTED: {R.RETRY},
    State.SPENT: {R.SPENT},
    State.EXPIRED: {R.EXPIRED},
    State.UNWANTED: {R.UNWANTED},
    State.READ: {R.READ},
}  # fmt: skip


def is_complete(states: Any) -> bool:
    """Return True if each state has an explanation, and its place among the next ones."""
    known = set(states)
    return known == EXPLAINED.keys() == ALLOWED.keys() == {*NEXT_STATES, State.READ}


def test_no_state_is_left_out() -> None:
    """Of the table of delivery: each has an explanation, and a place among the next ones."""
    assert is_complete(State)
    befores = {state for rule in delivery_table.RULES for state in rule.before}
    assert befores <= EXPLAINED.keys()


def test_a_state_that_is_new_is_missed() -> None:
    """A canary: one more in the table has no explanation yet."""
    assert not is_complete([*State, "NEW"])


@pytest.mark.parametrize("reason", UndeliveredReason)
def test_each_reason_has_words(reason: UndeliveredReason) -> None:
    """Made of its fields alone: with all, and with none, as who may not see them has it (WD1)."""
    bare = Explanation("q", reason)
    full = Explanation(
        "q", reason, 7, 6, "AVAILABLE", 10**15, 10**15, 3, "worker 7", None, 5, 4, 2.0, "dead",
        "total > 1", "it is full", (R.STORE_STOPPED,),
    )  # fmt: skip
    for each in (bare, full, Explanation("q", reason, xid="x")):
        assert each.text == str(each)
        assert each.text.endswith(".")
        assert each.text.startswith("q")
    assert "Besides: gets of the whole store are stopped." in full.text
    assert set(explanation._WORDS) == set(UndeliveredReason)


class ExplainedHistory(History):
    """A history in which every message is asked about after each step."""

    told: ClassVar[set[tuple[str, UndeliveredReason]]] = set()

    def reopen(self) -> None:
        """Go on: what is known anew after that, other tests look at."""

    def check(self) -> None:
        super().check()
        kept = [message.id for message in self.store.browse(self.name, 10_000)]
        for source, model in self.models.items():
            first = self.first_of(model)
            for message_id in kept:
                found = self.store.admin.explain(source, message_id)
                self.check_one(model, found, first)
            self.check_next(model, self.store.admin.explain(source), first)
        super().check()  # it was a look (WY2)

    def first_of(self, model: Model) -> Place | None:
        """Return what the model has everybody get next."""
        if model.is_exclusive and model.delivered:
            return None
        found = [place for place in model.places if model.may_take(place, None)]
        return min(found, key=lambda place: (place.key or (), place.position), default=None)

    def check_one(self, model: Model, found: Explanation, first: Place | None) -> None:
        assert found.position is not None
        place = model.places[found.position]
        assert found.state == said_state(place)
        if found.reason is R.EXPIRED and place.state == "REJECTED":  # nobody has looked at it
            assert place.told.expires_us is not None
            assert place.told.expires_us <= model.now_us
        else:
            assert found.reason in ALLOWED[State[said_state(place)]], (place, found)
        self.told.add((said_state(place), found.reason))
        if place.state == "AVAILABLE" and not model.is_spent(place):
            assert (found.reason is R.READY) == (place is first), (place, found)
            is_free = model.may_take(place, None) and first is not None
            assert (found.reason in (R.READY, R.BEHIND)) == is_free, (place, found)
        if place.state == "IN_FLIGHT":
            assert (found.xid is not None) == place.is_prepared
            assert (found.transaction is not None) != place.is_prepared

    def check_next(self, model: Model, found: Explanation, first: Place | None) -> None:
        if first is not None and not model.is_spent(first):
            assert (found.reason, found.position) == (R.READY, first.position)
        left = [place for place in model.places if place.state != "READ"]
        assert (found.position is None) == (not left), found


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only when it is told to; and each history is one that asks."""
    monkeypatch.setattr(sim_env, "STEP_US", 0)
    monkeypatch.setitem(order_code._registered, BY_CODE, by_sender)
    monkeypatch.setattr(delivery_history, "History", ExplainedHistory)
    ExplainedHistory.told.clear()


@pytest.mark.fuzz
@pytest.mark.usefixtures("still")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_drawn_histories_are_explained(seed: int, rounds: int) -> None:
    """Each message as the model has it; asking has changed nothing."""
    delivery_history.run_many(range(seed, seed + rounds), volatile=False)


@pytest.mark.usefixtures("still")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_histories_show_the_reasons() -> None:
    """So they hold the explanations to something."""
    delivery_history.run_many(range(60))
    seen = {reason for _, reason in ExplainedHistory.told}
    assert seen >= {
        R.READY, R.BEHIND, R.SEQUENCE, R.SCHEDULED, R.IN_FLIGHT, R.RETRY, R.SPENT, R.EXPIRED,
        R.EXCLUSIVE, R.GROUP_IN_FLIGHT, R.GROUP_RETRY,
    }  # fmt: skip


@pytest.mark.usefixtures("still")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_wrong_explanation_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary: what waits for its group is told to be ready."""
    monkeypatch.setattr(explaining.Explainer, "_of_group", lambda *_: None)
    with pytest.raises(AssertionError):
        delivery_history.run_many(range(200))


def test_of_many_that_nobody_has_looked_at_it_says_so(
    sim: SimEnv, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More are not looked at than a few; of one that is named its own header is (WY2)."""
    limits(EXPLAINED_MESSAGES=3)
    looks: list[object] = []
    monkeypatch.setattr(explaining, "catch_up", lambda *args: looks.append(args))
    with Store.open("/store", env=sim, background=False) as store:
        store.create_queue("q", kind="work", order="priority", timed=True)
        store.put("q", b"low", priority=1)
        late = store.put("q", b"late", priority=1, delay=3600)
        ids = store.put_many("q", [b"high"] * 8)
    with Store.open("/store", env=sim, background=False) as store:
        found = store.admin.explain("q", ids[0])
        assert (found.reason, found.number) == (R.NOT_LOOKED_AT, 10)
        assert store.admin.explain("q", late).reason is R.SCHEDULED
        assert store.admin.explain("q").reason is R.NOT_LOOKED_AT
        assert not looks
        with store.transaction() as txn:
            assert txn.get("q") is not None  # which looks at all
            assert store.admin.explain("q", ids[0]).reason is R.READY


def test_few_headers_are_read_for_one_that_is_named(
    sim_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are in the order of commits: the message's block, and the first one's."""
    sim_store.create_queue("q", kind="work")
    ids = [each for _ in range(50) for each in sim_store.put_many("q", [b"x"] * 20)]
    read: list[int] = []
    deliver = BlockReader.deliver

    def counting(self: BlockReader, *args: Any) -> Any:
        read.append(1)
        return deliver(self, *args)

    monkeypatch.setattr(BlockReader, "deliver", counting)
    assert sim_store.admin.explain("q", ids[777]).behind == ids[0]
    assert len(read) <= 3

"""Whatever the limits are, a transaction does the same: none of the ways that they choose is worse.

Each script is run at default limits and at drawn ones, which are so small that each way is met.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from quire import limits
from quire.engine import EmbeddedStore as Store
from quire.engine.commits.commit_plan import CommitPlan
from quire.engine.commits.committer import Committer
from quire.engine.commits.transaction_change import TransactionChange
from quire.engine.pages.block_places import Places
from quire.errors import StoreCorrupt
from quire.testing import SimEnv
from tests.engine.fall_back_limits import LIMITS, NO_WAY, drawn_limits, drawn_options
from tests.engine.fall_back_run import Run
from tests.engine.fall_back_script import Script
from tests.engine.fall_back_ways import WAYS, watched
from tests.kit.limits import limited

AT_ONCE = 40  # transactions of a script
PER_ROUND = 16  # transactions: 10,000 are 625 rounds
SLICE = (
    6,
    7,
    10,
    13,
    15,
    18,
    55,
)  # seeds of scripts that every run tries, by which each way is met


def compare(seed: str, transactions: int = AT_ONCE) -> Counter[str]:
    """One script at default limits and at drawn ones; how often each way was gone."""
    steps = Script(Random(f"script {seed}"), transactions).steps
    rng = Random(f"limits {seed}")
    options, small = drawn_options(rng), drawn_limits(rng)
    told = f"seed {seed!r}, options {options}, limits {small}"
    expected = Run(1, {})
    expected.run(steps)
    wanted = ended(expected)
    with watched() as ways, limited(small):
        run = Run(1, options)
        run.run(steps)
        for index, (own, other) in enumerate(zip(run.outcomes, expected.outcomes, strict=True)):
            assert own == other, f"step {index}, {steps[index]!r:.300}: {told}"
        for own, other in zip(ended(run), wanted, strict=True):
            for name, held in own.items():
                assert held == other[name], f"{name}: {told}"
    return ways


def ended(run: Run) -> list[dict[str, object]]:
    """What the store holds, and what it holds when it was opened again."""
    found = []
    for _ in range(2):
        report = run.store.admin.verify()
        assert report.ok, report.findings
        found.append(run.contents())
        run.reopen()
    run.store.close()
    return found


def _compare_slice() -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in SLICE:
        met += compare(str(seed))
    return met


@pytest.mark.cases(4)
@pytest.mark.promise(2)
@pytest.mark.promise(3)
@pytest.mark.fuzz
def test_promise_2_whatever_the_limits_are_transactions_do_the_same() -> None:
    """The slice that every run tries, in which each way is met."""
    met = _compare_slice()
    assert [way for way in WAYS if not met[way]] == []


@pytest.mark.promise(2)
@pytest.mark.promise(3)
@pytest.mark.fuzz
@pytest.mark.long
def test_promise_2_whatever_the_limits_are_many_transactions_do_the_same(
    rng: Random, rounds: int
) -> None:
    """The same on the seed of the test run: 16 transactions for each of `--rounds`."""
    met: Counter[str] = Counter()
    for _ in range(max(1, rounds * PER_ROUND // AT_ONCE)):
        met += compare(f"{rng.getrandbits(32):08x}")
    print(f"\n{sum(met.values())} steps by {len(met)} ways, the rarest: {met.most_common()[-5:]}")
    if rounds * PER_ROUND >= 250 * AT_ONCE:  # the rarest are met by one script of 15
        assert [way for way in WAYS if not met[way]] == []


@pytest.mark.cases(4)
@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ("lets go of what was not opened", AttributeError),
        ("takes one page for each block", (AssertionError, StoreCorrupt)),
    ],
)
def test_a_broken_way_is_caught(monkeypatch: pytest.MonkeyPatch, broken: str, found: Any) -> None:
    """The canary. The first is a fault that was there: a commit that stood raised."""
    if broken == "lets go of what was not opened":
        whole = Committer._take_steps

        def take_steps(self: Committer, plan: CommitPlan, change: TransactionChange) -> None:
            whole(self, plan, change)
            if plan.is_light and len(change.record) > self.inline_limit:
                self.leave_unused(change.transaction_id, plan.written)

        monkeypatch.setattr(Committer, "_take_steps", take_steps)
    else:
        monkeypatch.setattr(Places, "pages_for", lambda self, length: 1)
    with pytest.raises(found):
        _compare_slice()


def test_each_limit_is_drawn_or_chooses_no_way() -> None:
    """A new one is added to those that are drawn, or to those that choose nothing, below."""
    known = {name for name in vars(limits) if name.isupper()}
    assert known - set(LIMITS) - NO_WAY == set()
    assert set(LIMITS) <= known
    assert known >= NO_WAY
    assert not NO_WAY & set(LIMITS)


@pytest.mark.cases(2)
@pytest.mark.promise(2)
@pytest.mark.parametrize("by_priority", [False, True])
def test_promise_2_a_small_transaction_with_a_large_record(
    sim: SimEnv, *, by_priority: bool
) -> None:
    """At default limits: one put, and so many entries or reads that they pass the inline limit."""
    with Store.open("/store", env=sim, background=False, segment_bytes=8 << 20) as store:
        store.create_queue("work", kind="work")
        store.create_queue("ranked", kind="work", order="priority")
        if by_priority:
            with store.transaction() as txn:
                priorities = pa.array([number % 2 for number in range(30_000)], pa.uint16())
                payloads = pa.array([b"x"] * 30_000, pa.binary())
                txn.put_many(
                    "ranked", pa.record_batch({"payload": payloads, "priority": priorities})
                )
        with store.transaction() as txn:
            message_id = txn.put("work", b"message")
            if by_priority:
                assert len(txn.get_many("ranked", 15_000)) == 15_000
            else:
                for number in range(400):
                    txn.enter(f"{number}" + "x" * 900, 1)
        assert txn.state == "committed"
        message = store.get("work")
        assert message is not None
        assert (message.id, message.payload) == (int(message_id), b"message")
        assert store.queue("work").open_transactions == 0
        assert store.admin.verify().ok

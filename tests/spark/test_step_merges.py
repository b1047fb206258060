"""The states of a graph's steps are merged beside its batches, and the status tells what is not."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from quire import keyed as plain
from quire.keyed.keyed_merges import KeyedMerges
from quire.keyed.run_merge import deepest
from quire.spark_graphs import Graph
from tests.keyed.conftest import SMALL_RUNS
from tests.kit.limits import Limits
from tests.kit.waiting import eventually
from tests.spark.numbered_queues import topic
from tests.spark.test_step_states import ORDERS, order, rows_in, summing

pytestmark = [pytest.mark.spark, pytest.mark.at_server]

CUSTOMERS = 60  # of a batch: its run is a file


def opened(store: Any) -> plain.KeyedState:
    """The state, as the store's owner sees it."""
    return plain.open_state(getattr(store, "_owned", store), "totals")


def put_orders(store: Any, number: int) -> Counter[str]:
    """Put those of a batch, one for each customer."""
    orders = {f"c{(number * 7 + each) % 90}": number for each in range(CUSTOMERS)}
    store.put_many("orders", [order(*each) for each in orders.items()])
    return Counter(orders)


def is_merged(store: Any) -> bool:
    """True if there is nothing to merge."""
    return bool(deepest(opened(store).runs())[0] < SMALL_RUNS["AHEAD_RUNS"])


def test_batches_find_nothing_to_merge(
    graph: Graph, store: Any, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All merges are made in the thread of the run, which ends with it (KMT1)."""
    limits(**SMALL_RUNS)
    threads: list[str] = []
    real = KeyedMerges._merge

    def merge(own: KeyedMerges, *given: Any) -> None:
        threads.append(threading.current_thread().name)
        real(own, *given)

    monkeypatch.setattr(KeyedMerges, "_merge", merge)
    topic(store, "sums")
    summing(graph)
    topic(store, "orders", schema=ORDERS)
    expected: Counter[str] = Counter()
    with graph.start(restart="never") as run:
        for number in range(1, 6):
            expected += put_orders(store, number)
            run.drain()
            eventually(lambda: is_merged(store))
        assert run.status().steps["add"].states[0].merge_error is None
    assert set(threads) == {"quire-merging"}
    assert "quire-merging" not in {each.name for each in threading.enumerate()}
    assert rows_in(store) == expected


def test_what_is_not_merged_the_status_tells(
    graph: Graph, store: Any, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches go on while merges fail, and merges go on once they do not (KMT2)."""
    limits(**(SMALL_RUNS | {"MAX_RUNS": 9, "MOST_RUNS": 18}))
    monkeypatch.setattr("quire.keyed.merge_thread.MERGE_RETRY_SECONDS", (0.05,))
    real, is_away = KeyedMerges._merge, True

    def merge(own: KeyedMerges, *given: Any) -> None:
        if is_away:
            raise OSError("the disk is away")
        real(own, *given)

    monkeypatch.setattr(KeyedMerges, "_merge", merge)
    topic(store, "sums")
    summing(graph)
    topic(store, "orders", schema=ORDERS)
    expected: Counter[str] = Counter()
    with graph.start(restart="never") as run:
        for number in range(1, 4):
            expected += put_orders(store, number)
            run.drain()

        def error() -> str | None:
            return run.status().steps["add"].states[0].merge_error

        eventually(lambda: error() == "OSError: the disk is away")
        assert "not merged: OSError: the disk is away" in str(run.status())
        assert len(opened(store).runs()) == 3
        is_away = False
        eventually(lambda: is_merged(store) and error() is None)
    assert rows_in(store) == expected

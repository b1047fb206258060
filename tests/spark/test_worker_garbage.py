"""What Spark's workers look at after every task: no modules."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from quire.spark_graphs import worker_garbage
from quire.spark_graphs.worker_garbage import leave_out_modules


@pytest.fixture(autouse=True)
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which nothing was left out, and in the end nothing is."""
    monkeypatch.setattr(worker_garbage, "_seen", set())
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_a_worker_looks_at_its_modules_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later objects are looked at as ever; when a module was imported, all is left out anew."""
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", "1")
    leave_out_modules()
    before = gc.get_freeze_count()
    assert before > 1_000
    later = [[number] for number in range(10_000)]
    leave_out_modules()
    assert gc.get_freeze_count() <= before  # less, where what was there has gone
    monkeypatch.setitem(sys.modules, "tests.spark.one_more", ModuleType("one_more"))
    leave_out_modules()
    assert gc.get_freeze_count() >= len(later)
    assert gc.get_freeze_count() > before


@pytest.mark.cases(8)
def test_other_processes_are_left_alone() -> None:
    """A program that has a session collects as it did."""
    leave_out_modules()
    assert gc.get_freeze_count() == 0

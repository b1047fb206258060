"""The benchmarks of a store at a port: a quick run counts round trips, and finds no fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.figure import BenchmarkSetting, Figure, Table
from bench.served import network, network_load


@pytest.mark.long
def test_a_quick_run_compares_clients_at_a_port(tmp_path: Path) -> None:
    """With TLS and without; a put is one round trip, and a transaction of three steps two."""
    found = network.run(BenchmarkSetting(tmp_path, quick=True, seed=1))
    trips = [each for each in found if isinstance(each, Figure) and "round trips" in each.name]
    assert len(trips) == 4
    assert all(each.met for each in trips)
    titles = [each.title for each in found if isinstance(each, Table)]
    assert any("Tasks of one process" in title for title in titles)


@pytest.mark.long
def test_a_quick_run_attacks_a_server(tmp_path: Path) -> None:
    """Consumers that wait have memory, and hostile clients cost little."""
    found = network_load.run(BenchmarkSetting(tmp_path, quick=True, seed=1))
    figures = [each for each in found if isinstance(each, Figure)]
    assert all(each.met for each in figures if each.target is not None)
    waiting, hostile = (each for each in found if isinstance(each, Table))
    assert len(waiting.rows) == 4
    assert len(hostile.rows) == 8

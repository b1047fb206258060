"""The demo's input."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from demo import flights


@pytest.fixture(scope="module")
def whole() -> pa.Table:
    """All flights."""
    return flights.load()


@pytest.mark.cases(2)
def test_flights_come_in_the_order_of_their_schedule(whole: pa.Table) -> None:
    """FL1: by scheduled departure, then by line of the file; the first rows are a prefix of all."""
    keys = whole.select(["scheduled", "flight_id"])
    assert keys.equals(keys.sort_by([(name, "ascending") for name in keys.column_names]))
    assert sorted(whole["flight_id"].to_pylist()) == list(range(len(whole)))
    assert flights.load(10).equals(whole[:10])


def test_flights_have_the_columns_of_their_queue(whole: pa.Table) -> None:
    """Types as they are declared; nulls are what is not known of flights, and nothing else."""
    assert whole.schema.equals(flights.SCHEMA)
    missing = {name for name in whole.column_names if whole[name].null_count}
    assert missing == {"tailnum", "dep_delay", "arr_delay", "air_time"}


@pytest.mark.parametrize("name", sorted(flights.JOIN_KEYS))
def test_the_tables_to_join_with_have_unique_keys(name: str) -> None:
    """FL3: a join finds at most one row."""
    assert len(flights.reference(name)) > 0


def test_a_key_that_is_not_unique_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """FL3: a table whose key repeats would multiply flights, and is refused."""
    twice = tmp_path / "airlines.csv"
    pd.DataFrame({"carrier": ["AA", "AA"], "name": ["one", "two"]}).to_csv(twice, index=False)
    monkeypatch.setattr(flights, "table", lambda _: twice)
    with pytest.raises(ValueError, match="not unique"):
        flights.reference("airlines")

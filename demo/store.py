"""The store of the demo: its queues, who reads them, and how a process comes to it.

    publisher -> departures -> enrich -> enriched -> late -> delays
                                                  -> warn -> alerts -> worker -> notices

`enrich`, `late` and `warn` are the steps of the graph that Spark runs (`demo.processes.pipeline`).

The messages of all queues are rows. Every topic has one more subscription, `audit`, which holds all
messages for the reconciliation.
"""

from __future__ import annotations

from pathlib import Path

from demo import flights
from quire.interface.store import Store
from quire.opening import open_or_serve
from quire.remote import JoinedStore

__all__ = ["ALERTS", "AUDIT", "GRAPH", "QUEUES", "TOPICS", "create_queues", "join"]

GRAPH = "flights"
ALERTS = "alerts"
AUDIT = "audit"

ENRICHED = """
    flight_id int not null, scheduled timestamp not null, carrier string not null, airline string,
    flight int, tailnum string, origin string, from string, dest string, to string,
    delay int, cancelled boolean not null, air_time int, distance int,
    weather struct<temperature_f: double, wind_mph: double, rain_in: double, visibility_mi: double>
"""
ALERT = """
    flight_id int not null, scheduled timestamp not null, carrier string not null, flight int,
    origin string, dest string, delay int, reason string not null
"""
NOTICE = """
    flight_id int not null, carrier string not null, delay int, reason string not null,
    text string not null
"""

# The columns of each queue, as words or as a schema of Arrow.
QUEUES = {
    "departures": flights.SCHEMA,
    "enriched": ENRICHED,
    "delays": ENRICHED,
    ALERTS: ALERT,
    "notices": NOTICE,
}
TOPICS = [name for name in QUEUES if name != ALERTS]


def create_queues(store: Store) -> None:
    """Make the queues and subscriptions in a new store."""
    for name, schema in QUEUES.items():
        store.create_queue(name, kind="topic" if name in TOPICS else "work", schema=schema)
    for name in TOPICS:
        store.subscribe(name, AUDIT, start="earliest")


def join(path: Path) -> JoinedStore:
    """The store, in the hands of its owner, a process that is started if there is none."""
    return open_or_serve(str(path))

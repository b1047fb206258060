"""The worker: takes alerts and writes notices, in one transaction each time.

Nothing else is needed for exactly once: an alert is gone if and only if its notice is there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo import store
from demo.processes.finish import Finish
from demo.timeline import Timeline
from quire.errors import ConnectionLost, OutcomeUnknown
from quire.interface.store import Store

__all__ = ["notice", "work"]

MOST_ALERTS = 100  # in one transaction
WAIT_SECONDS = 0.5


def notice(alert: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text that passengers get about an alert."""
    flight = "{carrier} {flight} from {origin} to {dest}".format_map(alert)
    is_cancelled = alert["reason"] == "cancelled"
    news = "is cancelled" if is_cancelled else f"is {alert['delay']} minutes late"
    fields = {name: alert[name] for name in ("flight_id", "carrier", "delay", "reason")}
    return {**fields, "text": f"{flight} {news}"}


def work(path: Path, finish: Finish, timeline: Timeline) -> None:
    """Turn alerts into notices until `finish` is asked for and no alert is left."""
    while True:
        try:
            with store.join(path) as joined:
                while _step(joined, timeline) or not finish.requested:
                    pass
            return
        except (ConnectionLost, OutcomeUnknown) as error:
            timeline.add("lost", error=repr(error))


def _step(joined: Store, timeline: Timeline) -> int:
    """Run one transaction; return how many alerts it took."""
    with joined.transaction() as transaction:
        alerts = transaction.get_many(store.ALERTS, MOST_ALERTS, timeout=WAIT_SECONDS)
        notices = [notice(alert.decode()) for alert in alerts]
        if not notices:
            return 0
        transaction.put_many("notices", notices)
        begin = time.perf_counter()
        transaction.commit()
        took = time.perf_counter() - begin
    timeline.add("commit", messages=2 * len(notices), seconds=took)
    return len(notices)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.processes.worker", description=__doc__)
    parser.add_argument("folder", type=Path, help="the demo's folder")
    folder: Path = parser.parse_args().folder
    work(folder / "store", Finish(), Timeline(folder, "worker"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

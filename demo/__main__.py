"""Replay a year of flights through queues and Spark, kill everything in the middle, and reconcile.

Five processes work on one store: its owner (`quire serve`), the publisher, the Spark driver, the
worker, and this one, which watches. Three times there is a SIGKILL without warning: of all
others with their descendants, while a large transaction is open; of Spark, in a batch; and of the
owner alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from demo import store
from demo.outcome import reconcile, report
from demo.strikes import chaos
from demo.strikes.crew import kill, tails
from demo.strikes.watch import DemoFailed
from demo.timeline import Timeline, read

SECONDS = 60.0  # that publishing all flights takes; fewer flights take a part of it
LEAST_SECONDS = 15.0
ALL_ROWS = 336_776
REPORT = Path(__file__).with_name("report.html")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=ALL_ROWS, help="how many flights (default: all)"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep store and logs in DIR")
    parser.add_argument("--seconds", type=float, help="how long the publisher takes")
    parser.add_argument("--seed", type=int, default=2013, help="of the transactions' sizes")
    parser.add_argument("--report", type=Path, default=REPORT, help="where the report goes")
    parsed = parser.parse_args(arguments)
    if not 1 <= parsed.rows <= ALL_ROWS:
        parser.error(f"--rows: from 1 to {ALL_ROWS}")
    if parsed.seconds is None:
        parsed.seconds = max(LEAST_SECONDS, SECONDS * parsed.rows / ALL_ROWS)
    return parsed


def main() -> int:
    arguments = parse()
    if arguments.keep is None:
        with tempfile.TemporaryDirectory(prefix="quire-demo-") as folder:
            return demonstrate(Path(folder), arguments)
    arguments.keep.mkdir(parents=True, exist_ok=True)
    if any(arguments.keep.iterdir()):
        print(f"{arguments.keep} is not empty: give another folder to --keep", file=sys.stderr)
        return 2
    return demonstrate(arguments.keep.resolve(), arguments)


def demonstrate(folder: Path, arguments: argparse.Namespace) -> int:
    """Run the flow, reconcile, report; the exit status."""
    began = time.monotonic()
    want = reconcile.expected(arguments.rows)
    totals = {name: len(want.get(name, want["notices"])) for name in store.QUEUES}
    members = chaos.crew(folder, arguments.rows, arguments.seconds, arguments.seed)
    try:
        chaos.run(folder, members, totals, Timeline(folder, "demo"))
        print("Reconciling the queues with the CSV files ...")
        with store.join(folder / "store") as opened:
            lines, have = reconcile.examine(opened, want)
            picture = report.flow(opened)
        chaos.end_owner(folder / "store")
    except DemoFailed as failure:
        print(f"The demo failed: {failure}\n{tails(members)}", file=sys.stderr)
        return 1
    finally:
        kill(members)
    print(reconcile.render(lines))
    carriers = reconcile.by_carrier(want["delays"], have["delays"])
    arguments.report.write_text(report.page(read(folder), lines, carriers, picture))
    wrong = reconcile.wrong(lines)
    verdict = f"{len(wrong)} of them DIFFER" if wrong else "all equal"
    print(f"{len(lines)} figures compared, {verdict}. {time.monotonic() - began:.0f} s.")
    print(f"Report: {arguments.report}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

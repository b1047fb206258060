"""Write the table of durations, tests/durations.tsv, from the last `make test`.

A line is a test function of `make test` whose longest case takes a second or more: processor
seconds of that case, the function, and why it takes so long. Of more than five seconds there must
be a reason (`tests/test_durations.py`). The seconds are those of the test's process and of all that
it has started, so that they say the same on a busy machine. Reasons that stand in the table stay.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "durations.tsv"
MEASURED = ROOT / "build" / "tests"
FROM_SECONDS = 1.0
REASON_SECONDS = 5.0


class DurationLine(NamedTuple):
    """A line of the table."""

    test: str
    seconds: float
    reason: str = ""


def read_table(text: str) -> list[DurationLine]:
    """Return the lines of the table."""
    fields = [line.split("\t") for line in text.splitlines()]
    return [DurationLine(test, float(seconds), reason) for seconds, test, reason in fields]


def longest(measured: str) -> dict[str, float]:
    """Return the seconds of the longest case of each test function that was measured."""
    found: dict[str, float] = {}
    for line in measured.splitlines():
        seconds, _, test = line.partition("\t")
        function = test.partition("[")[0]
        found[function] = max(found.get(function, 0.0), float(seconds))
    return found


def table(measured: dict[str, float], before: list[DurationLine]) -> str:
    """Return the table of what was measured, with the reasons that there were."""
    reasons = {line.test: line.reason for line in before}
    lines = sorted((-seconds, test) for test, seconds in measured.items())
    return "".join(
        f"{-seconds:.1f}\t{test}\t{reasons.get(test, '')}\n"
        for seconds, test in lines
        if -seconds >= FROM_SECONDS
    )


def main() -> int:
    """Return the exit status: 1 if nothing was measured, or a reason is missing."""
    files = sorted(MEASURED.glob("*.tsv"))
    if not files:
        print(f"There is no measurement in {MEASURED}: run `make test` first")
        return 1
    before = read_table(TABLE.read_text()) if TABLE.exists() else []
    text = table(longest("".join(file.read_text() for file in files)), before)
    TABLE.write_text(text)
    missing = [line for line in read_table(text) if line.seconds > REASON_SECONDS]
    missing = [line for line in missing if not line.reason]
    for line in missing:
        print(f"{TABLE.name}: say why {line.test} takes {line.seconds} seconds")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

"""`quire status --check`: one line and an exit status, for scripts and monitors."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Final

from quire.cli.command import argument
from quire.cli.opened_store import seen
from quire.cli.printing import counted
from quire.cli.typed_values import count, number, seconds
from quire.errors import InvalidArgument, QuireError
from quire.libraries.late_imports import importing

Parse = Callable[[str], float]
# What can be set: the thresholds' name, the option, how it is typed, the unit, the help text.
_THRESHOLDS: Final[tuple[tuple[str, str, Parse, str, str], ...]] = (
    ("used_percent", "used", number, "PERCENT", "of a queue's capacity in use (80, 95)"),
    ("waiting", "waiting", count, "N", "messages in a queue that are not read"),
    ("lag_seconds", "lag", seconds, "S", "that the archive is behind (60, 600)"),
    ("prepared_seconds", "prepared", seconds, "S", "that one is prepared, undecided (1h, 1d)"),
)

CHECKS: Final = (
    argument("--check", action="store_true", help="one line: OK, WARNING or CRITICAL, and why"),
    argument("--owner", action="store_true", help="with --check: it is critical to have no owner"),
    *(
        argument(f"--{level}-{name}", type=parse, metavar=unit, help=f"with --check: {text}")
        for _, name, parse, unit, text in _THRESHOLDS
        for level in ("warning", "critical")
    ),
)
"""The arguments of `status` that are about it."""


def check_status(options: argparse.Namespace) -> int:
    """Print the line; return the level, which is 0, 1 or 2."""
    with importing():
        from quire.reports.status_findings import Level, StatusFinding, Thresholds, findings

    thresholds = Thresholds()
    for field, name, *_ in _THRESHOLDS:
        levels = ("warning", "critical")
        typed = {level: getattr(options, f"{level}_{name}") for level in levels}
        changes = {level: value for level, value in typed.items() if value is not None}
        changed = getattr(thresholds, field)._replace(**changes)
        thresholds = thresholds._replace(**{field: changed})
    try:
        if options.queue is not None:
            raise InvalidArgument("--check looks at the whole store: leave the queue out")
        status: dict[str, Any] = seen(options, lambda store: store.status())
        found = findings(status, thresholds)
        if options.owner and "sharing" not in status:
            found.insert(0, StatusFinding(Level.CRITICAL, "no process owns the store"))
    except (QuireError, OSError) as error:
        status = {}
        found = [StatusFinding(Level.CRITICAL, f"{type(error).__name__}: {error}")]
    level = max((finding.level for finding in found), default=Level.OK)
    text = "; ".join(" ".join(finding.text.split()) for finding in found) or _summary(status)
    print(f"{level.name}: {text}")
    return int(level)


def _summary(status: dict[str, Any]) -> str:
    waiting = sum(queue["messages"] for queue in status["queues"])
    return f"{counted(waiting, 'message')} in {counted(len(status['queues']), 'queue')}"

"""The reconciliation must notice every difference; here it is shown some."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import quire
from demo import flights, store
from demo.outcome import reconcile
from demo.processes import worker
from quire.interface.store import Store

ROWS = 600


@pytest.fixture(scope="module")
def want() -> reconcile.Frames:
    """What the first flights must become."""
    return reconcile.expected(ROWS)


def enriched(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that Spark would write for these flights, made without it."""
    made = frame[["flight_id", "carrier", "flight", "origin", "dest"]].assign(
        scheduled=pd.to_datetime(frame["time_hour"]),
        delay=frame["delay"].astype("Int32"),
        cancelled=frame["reason"] == "cancelled",
    )
    for name, value in (("airline", "there"), ("to", "there"), ("weather", {"wind_mph": 3.5})):
        made[name] = [value if there else None for there in frame[name]]
    return made


def alerts(frame: pd.DataFrame) -> pd.DataFrame:
    """The same for `alerts`."""
    rows = enriched(frame).drop(columns=["cancelled", *reconcile.MARKS])
    return rows.assign(reason=frame["reason"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, want: reconcile.Frames) -> Path:
    """The folder of a demo that went right."""
    folder = tmp_path_factory.mktemp("finished")
    with quire.open(str(folder / "store")) as opened:
        store.create_queues(opened)
        with opened.transaction() as transaction:
            transaction.put_many("departures", flights.load(ROWS))
            transaction.put_many("enriched", enriched(want["enriched"]))
            transaction.put_many("delays", enriched(want["delays"]))
            transaction.put_many("alerts", alerts(want["notices"]))
        with opened.transaction() as transaction:
            taken = transaction.get_many("alerts", len(want["notices"]))
            transaction.put_many("notices", [worker.notice(alert.decode()) for alert in taken])
    return folder


@pytest.fixture
def folder(tmp_path: Path, finished: Path) -> Path:
    """A copy of it, for a test to spoil."""
    return shutil.copytree(finished, tmp_path, dirs_exist_ok=True)


@pytest.fixture
def opened(folder: Path) -> Iterator[Store]:
    """The store of the copy."""
    with quire.open(str(folder / "store")) as found:
        yield found


def reconcile_again(folder: Path) -> subprocess.CompletedProcess[str]:
    """What a user would run."""
    command = [sys.executable, "-m", "demo.outcome.reconcile", str(folder), "--rows", str(ROWS)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)


def differing(opened: Store, want: reconcile.Frames) -> set[str]:
    """The queues with figures that differ."""
    lines, _ = reconcile.examine(opened, want)
    return {line.queue for line in reconcile.wrong(lines)}


@pytest.mark.long
def test_the_command_says_whether_figures_are_equal(folder: Path) -> None:
    """A right outcome exits with 0, and with 1 when a departure has been taken since."""
    right = reconcile_again(folder)
    assert right.returncode == 0, right.stdout + right.stderr
    assert "DIFFERS" not in right.stdout
    with quire.open(str(folder / "store")) as opened:
        opened.get(f"departures/{store.AUDIT}")
    wrong = reconcile_again(folder)
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    assert "DIFFERS" in wrong.stdout


@pytest.mark.cases(2)
def test_nothing_is_taken(opened: Store, want: reconcile.Frames) -> None:
    """It finds the same a second time."""
    assert [differing(opened, want) for _ in range(2)] == [set(), set()]


@pytest.mark.cases(2)
@pytest.mark.parametrize("queue", store.TOPICS)
def test_a_missing_message_fails(opened: Store, want: reconcile.Frames, queue: str) -> None:
    """One message fewer in any queue is noticed."""
    with opened.transaction() as transaction:
        assert transaction.get(f"{queue}/{store.AUDIT}") is not None
    assert differing(opened, want) == {queue}


@pytest.mark.cases(2)
@pytest.mark.parametrize("queue", store.TOPICS)
def test_a_repeated_message_fails(opened: Store, want: reconcile.Frames, queue: str) -> None:
    """One message twice in any queue is noticed."""
    [first] = opened.browse(f"{queue}/{store.AUDIT}", max_messages=1)
    opened.put(queue, first.decode())
    assert differing(opened, want) == {queue}


def test_an_alert_that_nobody_took_fails(opened: Store, want: reconcile.Frames) -> None:
    """Alerts that are left are noticed."""
    opened.put_many("alerts", alerts(want["notices"][:1]))
    assert differing(opened, want) == {"alerts"}


@pytest.mark.parametrize("column", ["delay", "carrier"])
def test_a_wrong_field_fails(want: reconcile.Frames, column: str) -> None:
    """As many messages with another content are noticed."""
    have = {name: frame.copy() for name, frame in want.items()}
    row = have["delays"].index[0]
    have["delays"].loc[row, column] = 777 if column == "delay" else "XX"
    taken = (len(want["notices"]), 0)
    assert not reconcile.wrong(reconcile.compare(want, want, taken))
    assert {line.queue for line in reconcile.wrong(reconcile.compare(want, have, taken))} == {
        "delays"
    }


def test_two_messages_that_changed_places_fail(want: reconcile.Frames) -> None:
    """The order of the departures is part of the outcome."""
    have = dict(want)
    swapped = [1, 0, *range(2, len(want["enriched"]))]
    have["enriched"] = want["enriched"].iloc[swapped]
    wrong = reconcile.wrong(reconcile.compare(want, have, (len(want["notices"]), 0)))
    assert [line.measure for line in wrong] == ["out of order"]

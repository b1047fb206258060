"""The reconciliation must notice every difference; here it is shown some."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import quire
from demo import flights, reconcile, store, worker

ROWS = 600


@pytest.fixture(scope="module")
def want() -> reconcile.Frames:
    """What the first flights must become."""
    return reconcile.expected(ROWS)


def messages(frame: pd.DataFrame) -> list[bytes]:
    """What Spark would write for these flights, made without it."""
    return [_message(row) for row in frame.to_dict("records")]


def _message(row: dict[str, Any]) -> bytes:
    fields = {name: row[name] for name in ("flight_id", "carrier", "flight", "origin", "dest")}
    if not pd.isna(row["delay"]):
        fields["delay"] = int(row["delay"])
    fields["reason"] = row["reason"]
    fields |= {name: "there" for name in ("airline", "to") if row[name]}
    if row["weather"]:
        fields["weather"] = {"wind_mph": 3.5, "temperature_f": 40.0}
    return json.dumps(fields).encode()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, want: reconcile.Frames) -> Path:
    """The folder of a demo that went right."""
    alerts = messages(want["notices"])
    folder = tmp_path_factory.mktemp("finished")
    with quire.open(str(folder / "store")) as opened:
        store.create_queues(opened)
        with opened.transaction() as transaction:
            transaction.put_many("departures", flights.encode(flights.load(ROWS)))
            transaction.put_many("enriched", messages(want["enriched"]))
            transaction.put_many("delays", messages(want["delays"]))
            transaction.put_many("alerts", alerts)
        with opened.transaction() as transaction:
            transaction.get_many("alerts", len(alerts))
            transaction.put_many("notices", [worker.notice(alert) for alert in alerts])
    return folder


@pytest.fixture
def folder(tmp_path: Path, finished: Path) -> Path:
    """A copy of it, for a test to spoil."""
    return shutil.copytree(finished, tmp_path, dirs_exist_ok=True)


def reconcile_again(folder: Path) -> subprocess.CompletedProcess[str]:
    """What a user would run."""
    command = [sys.executable, "-m", "demo.reconcile", str(folder), "--rows", str(ROWS)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_equal_figures_pass_and_nothing_is_taken(folder: Path) -> None:
    """A right outcome exits with 0, and again the second time."""
    for _ in range(2):
        run = reconcile_again(folder)
        assert run.returncode == 0, run.stdout + run.stderr
        assert "DIFFERS" not in run.stdout


@pytest.mark.parametrize("queue", store.TOPICS)
def test_a_missing_message_fails(folder: Path, queue: str) -> None:
    """One message fewer in any queue is noticed."""
    with quire.open(str(folder / "store")) as opened, opened.transaction() as transaction:
        assert transaction.get(f"{queue}/{store.AUDIT}") is not None
    run = reconcile_again(folder)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "DIFFERS" in run.stdout


@pytest.mark.parametrize("queue", store.TOPICS)
def test_a_repeated_message_fails(folder: Path, queue: str) -> None:
    """One message twice in any queue is noticed."""
    with quire.open(str(folder / "store")) as opened, opened.transaction() as transaction:
        first = opened.browse(f"{queue}/{store.AUDIT}", max_messages=1).payloads()[0]
        transaction.put(queue, first)
    run = reconcile_again(folder)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "DIFFERS" in run.stdout


def test_an_alert_that_nobody_took_fails(folder: Path, want: reconcile.Frames) -> None:
    """Alerts that are left are noticed."""
    with quire.open(str(folder / "store")) as opened:
        opened.put("alerts", messages(want["notices"])[0])
    assert reconcile_again(folder).returncode == 1


@pytest.mark.parametrize("column", ["delay", "carrier"])
def test_a_wrong_field_fails(want: reconcile.Frames, column: str) -> None:
    """As many messages with another content are noticed."""
    have = {name: frame.copy() for name, frame in want.items()}
    row = have["delays"].index[0]
    have["delays"].loc[row, column] = 777 if column == "delay" else "XX"
    alerts = (len(want["notices"]), 0)
    assert not reconcile.wrong(reconcile.compare(want, want, alerts))
    assert {line.queue for line in reconcile.wrong(reconcile.compare(want, have, alerts))} == {
        "delays"
    }


def test_two_messages_that_changed_places_fail(want: reconcile.Frames) -> None:
    """The order of the departures is part of the outcome."""
    have = dict(want)
    swapped = [1, 0, *range(2, len(want["enriched"]))]
    have["enriched"] = want["enriched"].iloc[swapped]
    wrong = reconcile.wrong(reconcile.compare(want, have, (len(want["notices"]), 0)))
    assert [line.measure for line in wrong] == ["out of order"]

"""The script that counts the files an operation passes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import quire
from quire.intervals import IntervalSet
from scripts import files_passed
from scripts.files_passed import OPERATIONS, Operation, Trace, measure, source_of


@pytest.fixture
def trace() -> Iterator[Trace]:
    """One that is closed in the end."""
    trace = Trace()
    yield trace
    trace.close()


def test_a_known_operation(trace: Trace) -> None:
    """What it calls counts, each file once; what comes before and after does not."""
    held = IntervalSet()

    def add() -> None:
        held.add(1, 2)
        held.add(2, 3)

    assert trace.of(add) == ["quire/intervals.py"]
    assert trace.of(lambda: sorted([2, 1])) == []
    held.add(7, 8)
    assert trace.of(lambda: None) == []


def test_threads_that_serve_it(trace: Trace) -> None:
    """What another thread does meanwhile counts too, but for the store's maintenance."""
    held, ready = IntervalSet(), threading.Event()

    def other(go: threading.Event, done: threading.Event) -> None:
        ready.set()
        go.wait()
        held.add(1, 2)
        done.set()

    for name, files in (("other", ["quire/intervals.py"]), (files_passed.MAINTENANCE, [])):
        go, done, ended = threading.Event(), threading.Event(), threading.Event()
        ready.clear()

        def act(go: threading.Event = go, done: threading.Event = done) -> None:
            go.set()
            done.wait()

        def run(
            go: threading.Event = go,
            done: threading.Event = done,
            ended: threading.Event = ended,
        ) -> None:
            other(go, done)
            ended.wait()  # it is asked for its name

        thread = threading.Thread(target=run, name=name)
        thread.start()
        ready.wait()
        assert trace.of(act) == files
        ended.set()
        thread.join()


def test_only_files_of_the_project() -> None:
    """Links lead to one file; tests, libraries and made code are none of them."""
    package = Path(quire.__file__).parent
    assert source_of(str(package / "journal" / "journal.py")) == "journal/journal.py"
    assert source_of(str(package / "messages" / "message.py")) == "quire/messages/message.py"
    for path in (__file__, threading.__file__, "<string>"):
        assert source_of(path) is None


def test_every_operation_passes_some() -> None:
    """Two measurements of a store find the same, and an operation passes what it is made of."""
    first, second = measure([]), measure(["store.put", "txn.put", "txn.get"])
    assert list(first) == [operation.name for operation in OPERATIONS]
    assert {name: first[name] for name in second} == second
    assert "journal/journal.py" in first["store.put"]
    assert "journal/journal.py" not in first["txn.put"]
    assert "engine/transactions/reads.py" in first["txn.get"]
    assert "engine/pages/io_worker.py" in first["commit of 400 KB to each of two data files"]


def test_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Count, target, name; the files where they are asked for."""
    made = Operation("look", 3, lambda s: s, lambda s: s.queue("q"), lambda _: None)
    monkeypatch.setattr(files_passed, "OPERATIONS", [made])
    files_passed.main(["look", "--files"])
    head, line, *files = capsys.readouterr().out.splitlines()
    assert head.split() == ["files", "at", "most", "operation"]
    assert line.split() == [str(len(files)), "3", "look"]
    assert "engine/store.py" in [file.strip() for file in files]
    with pytest.raises(SystemExit):
        files_passed.main(["none"])
    assert "no operation 'none'" in capsys.readouterr().err

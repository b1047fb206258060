"""The examples of two pages do what these say, also where they speak of crashes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import quire
from quire.databases import Inbox, Outbox
from tests.coordination.postgres import Cluster
from tests.source_tree import ROOT

DOCUMENT = ROOT / "docs" / "two-phase-commit.md"
DATABASES = ROOT / "docs" / "databases.md"


def example(heading: str, document: Path = DOCUMENT) -> tuple[str, list[str]]:
    """The program under a heading, and the lines that it prints."""
    section = re.search(
        rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)",
        document.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert section is not None, f"no section {heading!r}"
    block = re.search(r"^```python\n(.*?)^```$", section[1], re.MULTILINE | re.DOTALL)
    printed = re.search(r"^It prints (.*?)\.$", section[1], re.MULTILINE)
    assert block is not None
    assert printed is not None, "the document does not say what the example prints"
    return block[1], re.findall(r"`([^`]*)`", printed[1])


def run(program: str, folder: Path, database: str = "") -> subprocess.CompletedProcess[str]:
    """Run it in a folder."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "DATABASE": database, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def check(heading: str, folder: Path, database: str = "") -> None:
    """The example prints what the document says, and nothing else."""
    program, printed = example(heading)
    result = run(program, folder, database)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == printed


def test_the_example_of_the_stores_own_calls(tmp_path: Path) -> None:
    """Prepared, closed, found and committed by its name."""
    check("Prepare, recover, decide", tmp_path)


def test_the_example_of_pep_249(tmp_path: Path) -> None:
    """Prepared, closed, reopened, recovered."""
    check("PEP 249", tmp_path)


@pytest.mark.cases(3)
def test_the_example_with_sqlalchemy(tmp_path: Path) -> None:
    """A row and a message in one commit."""
    check("The package `transaction`, and SQLAlchemy", tmp_path)


def test_the_example_with_postgresql(tmp_path: Path, cluster: Cluster) -> None:
    """A message becomes a row."""
    with cluster.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS orders")
    check("PostgreSQL, and any other PEP 249 connection", tmp_path, cluster.conninfo)


@pytest.mark.cases(3)
@pytest.mark.crash
@pytest.mark.promise(2)
@pytest.mark.parametrize(
    ("call", "key", "outcome"),
    [
        ("tpc_vote", "a", 0),  # Quire has
        ("tpc_vote", "~~", 1),  # and the database, which has committed
        ("tpc_finish", "a", 1),  # Quire was
    ],
)
def test_promise_2_the_row_decides_after_a_crash(
    tmp_path: Path, call: str, key: str, outcome: int
) -> None:
    """The process of the example is killed in its commit; its `recover` then makes both agree."""
    program, _ = example("The package `transaction`, and SQLAlchemy")
    join = "        join(store, xid)"
    assert join in program
    killer = f"        transaction.get().join(Killer({call!r}, {key!r}))\n"
    killed = program.replace(join, killer + join)
    killed = f"from tests.coordination.killer import Killer\n{killed}"
    assert run(killed, tmp_path).returncode == -signal.SIGKILL
    again = re.sub(
        r"^    connection\.execute\(text\(\"CREATE.*?\n", "", program, flags=re.MULTILINE
    )
    again = again.replace('store.create_queue("parcels", kind="work")\n', "")
    again = again.replace("engine.begin() as connection:", "engine.begin(): pass")
    again = re.sub(r"^order\(.*\n", "", again, flags=re.MULTILINE)
    again += "with engine.connect() as c: print(c.execute(text('SELECT what FROM orders')).all())\n"
    result = run(again, tmp_path)
    rows = "[('2 apples',)]" if outcome else "[]"
    assert (result.stdout.splitlines(), result.stderr) == ([f"{outcome} []", rows], "")
    with quire.open(str(tmp_path / "shop.quire")) as store:
        assert store.admin.verify().ok


# Outbox and inbox --------------------------------------------------------------------------------


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "heading", ["Put in your transaction", "With `quire.aio`", "A message's effect, once"]
)
def test_the_examples_beside_a_database(tmp_path: Path, heading: str) -> None:
    """Each is a program, and prints what the page says."""
    program, printed = example(heading, DATABASES)
    result = run(program, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == printed


def test_the_tables_of_the_page() -> None:
    """They are those that are made."""
    told = re.search(r"^```sql\n(.*?)^```$", DATABASES.read_text(), re.MULTILINE | re.DOTALL)
    assert told is not None
    written = re.sub(r" *--.*", "", told[1]).split(";\n")
    made = [*Outbox().ddl("postgresql"), *Inbox().ddl("postgresql")]
    assert [text.strip() for text in written if text.strip()] == [
        text.replace("IF NOT EXISTS ", "") for text in made
    ]

"""Wrong uses, as a table: each call and command, its error, the error's first line, what to do.

`wrong_uses.txt` has two lines for each: what somebody writes, and below it what is raised, as a
traceback ends; `...` in it stands for any words. A line that begins with `quire` is a command, to
which the path of the store is added, and its second line is what standard error has first.
"""

from __future__ import annotations

import ast
import asyncio
import datetime as dt
import inspect
import io
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import pyarrow as pa
import pytest

import quire.aio
import quire.coordination
import quire.graphs
from quire.cli import main
from quire.interface.store import Store
from tests.kit.children import join

TABLE = Path(__file__).with_name("wrong_uses.txt")
COMMAND = "quire "
CHANGES = "# it changes the store"  # what is right of it
# What tells somebody what to do.
ADVICE = re.compile(
    r"\b(give|use|make|create|begin|put|read|open|close|end|decide|drop|add|register|install|ask|try"
    r"|take|cast|encode|fill|reject|leave|correct|alter|list|let|see|split|commit|call|start|go(?:es)?"
    r"|must|may|can|has to|needs|there (?:are|is)"
    r"|did you mean|roll back|choose from|required|expected|not allowed"
    r"|at most|cannot hold|keeps|none of|is no(?= )|stay|do it)(?![a-z])|lists|lets"
)


class Row(NamedTuple):
    """A wrong use."""

    section: str
    written: str
    raised: str  # as the table has it
    line: int  # of the table

    @property
    def pattern(self) -> str:
        """Of the first line of the error."""
        return r".*".join(map(re.escape, self.raised.split("...")))


def rows(*, commands: bool) -> list[Any]:
    """Those of the table, as parameters of a test."""
    found, section = [], ""
    lines = TABLE.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("# "):
            section = line.removeprefix("# ")
        elif line and not line.startswith(" "):
            row = Row(section, line, lines[number].strip(), number)
            if line.startswith(COMMAND) == commands:
                found.append(pytest.param(row, id=f"{section}-{number}"))
    return found


class World(NamedTuple):
    """What the lines of the table are about."""

    store: Store
    astore: quire.aio.AsyncStore
    closed: Store
    loop: asyncio.AbstractEventLoop

    def numbers(self) -> object:
        """What a wrong use must leave as it was."""
        store = self.store
        queues = store.queues()
        return (
            [(q.name, q.kind, q.messages, q.capacity_bytes, q.text) for q in queues],
            [
                (q.name, s.name, s.position, s.pending)
                for q in queues
                for s in store.subscriptions(q.name)
            ],
            store.admin.aliases(),
            [(schedule.name, schedule.paused) for schedule in store.cron.list()],
            [prepared.xid for prepared in store.prepared.list()],
            {name: store.states.items(name) for name in store.states.names()},
        )


def fill(store: Store) -> None:
    """Queues of all kinds, with a message here and there."""
    works = {"dead": {}, "plain": {}, "jobs": {"max_deliveries": 1000, "dead_letter": "dead"}}
    works["jobs"] |= {"timed": True, "order": "priority", "grouped": True, "dedup_count": 10}
    works |= {
        "closed": {"puts": False},
        "shut": {"gets": False},
        "small": {"max_message_bytes": 50},
    }
    works |= {"full": {"max_messages": 1}, "rows": {"schema": "id bigint not null, name string"}}
    for name, options in works.items():
        store.create_queue(name, kind="work", **options)  # type: ignore[arg-type]
    store.create_queue("events", kind="topic")
    store.subscribe("events", "audit")
    store.admin.create_alias("other", "jobs")
    store.cron.create("nightly", "plain", "@yearly")
    store.put("full", b"1")
    store.put("jobs", b"1")
    store.put("jobs", b"2", delay=3600.0)
    store.put("events", b"1")
    store.put("rows", {"id": 1, "name": "a"})
    with store.transaction() as txn:
        txn.enter("done", 5)
        txn.set_value("s", "k", b"v")


@pytest.fixture(scope="module", params=["embedded", "joined"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A store that this process owns, or has joined; the API for asyncio; and a closed store."""
    path = tmp_path_factory.mktemp(request.param)
    closed = quire.open(path / "closed")
    closed.close()
    loop = asyncio.new_event_loop()
    with quire.open(str(path / "store")) as owner:
        fill(owner)
        astore = loop.run_until_complete(opened_async(owner.path))
        if request.param == "embedded":
            yield World(owner, astore, closed, loop)
        else:
            with join(owner.path) as joined:
                yield World(joined, astore, closed, loop)
        loop.run_until_complete(astore.close())
        report = owner.admin.verify()
        assert report.ok, report.findings
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def opened_async(path: str) -> quire.aio.AsyncStore:
    """The store for asyncio."""
    return await quire.aio.open(path)


async def begun_async(store: quire.aio.AsyncStore) -> quire.aio.AsyncTransaction:
    """A transaction for asyncio."""
    return await store.transaction()


async def coroutine(message: object, transaction: object) -> None:
    """A handler that is none."""


TOOLS = {
    "quire": quire,
    "pa": pa,
    "io": io,
    "datetime": dt,
    "coroutine": coroutine,
    "__file__": __file__,
}


@pytest.mark.cases(4)
@pytest.mark.promise(13)
@pytest.mark.parametrize("row", rows(commands=False))
def test_a_wrong_use_says_what_to_do(world: World, row: Row) -> None:
    """The type of the error and its first line; nothing of the store is changed."""
    names = {
        **TOOLS,
        "store": world.store,
        "closed": world.closed,
        "astore": world.astore,
        "message": world.store.browse("jobs")[0],
        "txn": world.store.transaction(),
        "txn2": world.store.transaction(),
        "atxn": world.loop.run_until_complete(begun_async(world.astore)),
        "connection": quire.coordination.connect(world.store),
    }
    before = world.numbers()
    try:
        error = raised_by(row.written, names, world.loop)
    finally:
        for name in ("txn", "txn2"):
            names[name].rollback()
        with suppress(quire.TransactionClosed):
            world.loop.run_until_complete(names["atxn"].rollback())
        names["connection"].close()
    shown = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    assert re.match(row.pattern, shown), shown
    assert ADVICE.search(shown), shown
    if CHANGES not in row.written:
        assert world.numbers() == before


def raised_by(written: str, names: dict[str, Any], loop: asyncio.AbstractEventLoop) -> Exception:
    """What comes of what somebody has written; with `await` in a task."""
    code = compile(written, "wrong use", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    try:
        made = eval(code, names)
        if inspect.iscoroutine(made):
            loop.run_until_complete(made)
    except (quire.QuireError, quire.coordination.Error) as error:
        return error
    raise AssertionError(f"nothing is raised by {written}")


@pytest.mark.cases(4)
@pytest.mark.promise(13)
@pytest.mark.parametrize("row", rows(commands=True))
def test_a_wrong_command_says_what_to_type(
    world: World, row: Row, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line on standard error, and the usage where it was typed wrongly; nothing is changed."""
    before = world.numbers()
    _, command, *words = shlex.split(row.written)
    capfd.readouterr()
    try:
        status = main([command, world.store.path, *words])
    except SystemExit as end:
        status = int(end.code or 0)
    shown = capfd.readouterr().err.splitlines()
    assert re.match(row.pattern, shown[0]), shown[0]
    assert ADVICE.search(shown[0]), shown[0]
    assert len(shown) == (2 if status == 2 and len(shown) > 1 else 1)
    assert status == (1 if re.match(r"quire: [A-Z]", shown[0]) else 2)
    assert world.numbers() == before


def test_the_table_is_long_enough() -> None:
    """Each call of a store, by subject too, and of a transaction has a row at least."""
    table = [row.values[0] for commands in (False, True) for row in rows(commands=commands)]
    assert len(table) >= 350
    assert len({row.written for row in table}) == len(table)
    written = "\n".join(row.written for row in table)
    calls = set(re.findall(r"(?=(store|closed|txn|)\d?\.([\w.]+)\()", written))
    without = {"stop", "close"}  # any number of times, before and after
    receivers = {
        quire.Store: ("store", "closed"),
        quire.Transaction: ("txn",),
        quire.Workers: ("",),
    }
    missing = [
        f"{kind.__name__}: {path}{name}"
        for kind, names in receivers.items()
        for path, member in [("", kind), *subjects(kind)]
        for name, value in vars(member).items()
        if inspect.isfunction(value) and not name.startswith("_") and name not in without
        if not any((receiver, path + name) in calls for receiver in names)
    ]
    assert missing == []


def subjects(kind: type) -> Iterator[tuple[str, type]]:
    """What a property gives that has calls of its own, and how they begin."""
    for name, value in vars(kind).items():
        if isinstance(value, property) and value.fget is not None:
            given = get_type_hints(value.fget)["return"]
            if inspect.isclass(given) and given.__module__.startswith("quire."):
                yield f"{name}.", given

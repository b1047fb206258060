"""The public interface and what `help` says of it."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Callable
from typing import Any, assert_type

import pytest

import quire
from quire import aio, engine, errors, remote
from quire.aio import namespaces
from quire.aio.transaction import AsyncTransactionIntegration
from quire.calls.call_table import CallRow
from quire.interface.integration import TransactionIntegration
from quire.remote.ownership.shared_store import SharedStore
from quire.remote.wire import named_calls

NAMESPACES: dict[str, type] = dict(named_calls.NAMESPACES)
INTERFACES: list[type] = [
    quire.Store, quire.Transaction, quire.Consumer, quire.Listener, quire.Session,
    *NAMESPACES.values(),
    TransactionIntegration,
]  # fmt: skip
IMPLEMENTATIONS: dict[type, list[type]] = {
    quire.Store: [
        engine.EmbeddedStore,
        remote.JoinedStore,
        SharedStore,
    ],
    quire.Transaction: [
        engine.EmbeddedTransaction,
        remote.JoinedTransaction,
    ],
    TransactionIntegration: [
        made._integration for made in (engine.EmbeddedTransaction, remote.JoinedTransaction)
    ],
}
IMPLEMENTATIONS |= {subject: [subject] for subject in NAMESPACES.values()}  # for every store
PAIRS = [(kind, made) for kind, several in IMPLEMENTATIONS.items() for made in several]
ASYNC: list[tuple[type, type]] = [
    (quire.Store, aio.AsyncStore),
    (quire.Transaction, aio.AsyncTransaction),
    (quire.Consumer, aio.AsyncConsumer),
    (quire.Listener, aio.AsyncListener),
    (quire.Session, aio.AsyncSession),
    (TransactionIntegration, AsyncTransactionIntegration),
    *((kind, getattr(namespaces, f"Async{kind.__name__}")) for kind in NAMESPACES.values()),
]

# Arguments that are sizes or times: the words one of which has to stand in the method's text.
UNITS = {
    "capacity": "bytes",
    "timeout": "seconds",
    "seconds": "seconds",
    "expires_at": "microseconds",
    "deliver_at": "microseconds",
}
# What raises nothing of its own: see what the class says of all methods.
RAISES_NOTHING = {
    "Store.transaction", "Store.status", "Store.close", "Consumer.stop", "Consumer.close",
    "Listener.close",
    "Admin.aliases",
    "Admin.transactions", "Admin.verify", "Cron.list", "States.names", "Prepared.list",
    "Integration.ledger", "Integration.end_lease",
}  # fmt: skip


def members(kind: type) -> dict[str, Any]:
    """The public members, by name."""
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


def methods() -> list[tuple[str, Callable[..., object]]]:
    """All public methods, with their interface's name."""
    return [
        (f"{kind.__name__}.{name}", value)
        for kind in INTERFACES
        for name, value in members(kind).items()
        if inspect.isfunction(value)
    ]


BEGIN = (
    "Store.transaction",
    "Store.consume",
    "Listeners.add",
    "Session.transaction",
)  # what is awaited, or used in a block


@pytest.mark.parametrize("kind", INTERFACES)
def test_help_is_for_users(kind: type) -> None:
    """It names nothing of the inside, and sends nobody elsewhere for what it should say."""
    text = pydoc.plain(pydoc.render_doc(kind))
    for inside in ("See the module", "self._", "_manager", "sequencer", "quire.engine"):
        assert inside not in text
    for name, value in members(kind).items():
        assert inspect.getdoc(value), name
        assert name in text


@pytest.mark.parametrize(("name", "method"), methods(), ids=[name for name, _ in methods()])
def test_a_method_says_units_and_errors(name: str, method: Callable[..., object]) -> None:
    """Of what it takes, and of what it raises; each error that it names is one of Quire's."""
    text = inspect.getdoc(method) or ""
    for argument, unit in UNITS.items():
        if argument in inspect.signature(method).parameters and "Takes what" not in text:
            assert unit in text, f"{name} does not say that {argument} is in {unit}"
    if name in RAISES_NOTHING:
        assert "Raises" not in text
    else:
        assert re.search("[Rr]aises", text), name
    for error in re.findall(r"\b((?:Queue|Store|Transaction|Subscription)[A-Z]\w+)\b", text):
        if error not in ("TransactionInfo", "QueueOptions"):
            assert hasattr(errors, error), f"{name} names {error}"


@pytest.mark.parametrize(("kind", "made"), PAIRS)
def test_an_implementation_has_the_interface(kind: type, made: type) -> None:
    """mypy holds the types; this holds the names, orders and defaults of the arguments."""
    for name, value in members(kind).items():
        found = getattr(made, name, None)
        assert inspect.getdoc(found) or name in ("path", "role", "store_id", "id", "state"), name
        if not inspect.isfunction(value):
            continue
        assert inspect.isfunction(found), name
        expected = inspect.signature(value).parameters.values()
        plain = [p for p in expected if p.kind is p.POSITIONAL_OR_KEYWORD]
        given = list(inspect.signature(found).parameters.values())[: len(plain)]
        assert [(p.name, p.default) for p in given] == [(p.name, p.default) for p in plain], name


def test_the_core_is_small() -> None:
    """Of `Store` 24 members at most are no namespace; each namespace is a member."""
    assert len(members(quire.Store).keys() - NAMESPACES.keys()) <= 24
    assert NAMESPACES.keys() <= members(quire.Store).keys()


@pytest.mark.parametrize(
    "row", [*named_calls.CALLS.values(), *named_calls.STEPS.values()], ids=lambda r: r.op
)
def test_a_row_is_in_every_form(row: CallRow) -> None:
    """With the same parameters: embedded, joined, in a store that lives on, and for asyncio."""
    interface = next((k for k in INTERFACES if vars(k).get(row.name) is row.method), None)
    if interface is None:  # one that joined stores use among themselves
        is_step = row.op in named_calls.STEPS
        used: type = engine.EmbeddedTransaction if is_step else engine.EmbeddedStore
        assert callable(getattr(used, row.name))
        return
    wanted = inspect.signature(row.method).parameters
    for made in (*IMPLEMENTATIONS[interface], dict(ASYNC)[interface]):
        given = inspect.signature(getattr(made, row.name)).parameters
        assert {n: p.default for n, p in given.items()} == {
            n: p.default for n, p in wanted.items()
        }, made


def test_a_row_of_a_subject_has_a_handler() -> None:
    """It takes what the row names, and has no default of its own: those are the row's."""
    rows = [row for row in named_calls.CALLS.values() if row.path]
    assert {row.path for row in rows} == NAMESPACES.keys()
    with engine.EmbeddedStore.open(None, background=False) as store:
        for row in rows:
            signature = inspect.signature(getattr(store._handlers.of(row.path), row.name))
            signature.bind(**dict.fromkeys(row.arguments().names))
            assert all(p.default is p.empty for p in signature.parameters.values()), row.op


@pytest.mark.parametrize("path", NAMESPACES)
def test_wrong_arguments_of_a_row_are_told_as_python_tells_them(path: str) -> None:
    """By the name of the subject's method, whichever store makes the call."""
    with engine.EmbeddedStore.open(None, background=False) as store:
        subject = getattr(store, path)
        for row in named_calls.CALLS.values():
            if row.path == path:
                wrong = rf"{type(subject).__name__}\.{row.name}\(\) (takes|got|missing) "
                with pytest.raises(TypeError, match=wrong):
                    getattr(subject, row.name)(*range(20))


@pytest.mark.parametrize(("kind", "made"), ASYNC)
def test_the_api_for_asyncio_is_the_interface(kind: type, made: type) -> None:
    """Each method is a coroutine with the same arguments and text, but for what begins a block."""
    own = members(made).keys()
    assert members(kind).keys() - {"when_ready", "stop"} == own
    for name in own:
        value, expected = vars(made)[name], members(kind)[name]
        assert inspect.getdoc(value) == inspect.getdoc(expected), name
        if inspect.isfunction(expected):
            assert inspect.iscoroutinefunction(value) == (f"{kind.__name__}.{name}" not in BEGIN)
            given, wanted = (inspect.signature(each).parameters for each in (value, expected))
            assert {n: p.default for n, p in given.items()} == {
                n: p.default for n, p in wanted.items()
            }, name


def test_the_tree_of_errors_is_all_there() -> None:
    """The picture in the module's text names every class, under its parent."""
    shown: dict[str, int] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^[\s│├└─]*?(\w+)(?: \(\w+\))?(?:\s{2,}|$)", line)
        if found and found[1] in vars(errors):
            shown[found[1]] = line.index(found[1]) // 4
    classes = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.QuireError)
    }

    def depth_of(value: type) -> int:
        """Under its first base; others stand in brackets."""
        return 1 if value is errors.QuireError else 1 + depth_of(value.__bases__[0])

    depth = {name: depth_of(value) for name, value in classes.items()}
    for warning in ("NobodyReads", "FileSystemWarning"):  # which stand beside it
        assert shown.pop(warning) == 2
    assert shown == depth
    assert {name for name in classes if not hasattr(quire, name)} == set()  # to be caught


def loops(store: quire.Store) -> None:
    """For type checkers alone, which read this with the other tests: what loops are of."""
    assert_type(store.consume("q"), quire.Consumer[quire.Message])
    assert_type(store.consume("q", max_messages=10), quire.Consumer[quire.Messages])

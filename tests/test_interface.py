"""The public interface and what `help` says of it."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Callable
from typing import Any

import pytest

import quire
from quire import aio, engine, errors, remote
from quire.remote.elected_store import ElectedStore
from quire.remote.elected_transaction import ElectedTransaction
from quire.remote.shared_store import SharedStore

INTERFACES: list[type] = [quire.Store, quire.Transaction, quire.Consumer]
IMPLEMENTATIONS: dict[type, list[type]] = {
    quire.Store: [
        engine.EmbeddedStore,
        remote.RemoteStore,
        SharedStore,
        ElectedStore,
    ],
    quire.Transaction: [
        engine.EmbeddedTransaction,
        remote.RemoteTransaction,
        ElectedTransaction,
    ],
}
PAIRS = [(kind, made) for kind, several in IMPLEMENTATIONS.items() for made in several]

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
    "aliases", "state_names", "transactions", "transaction", "recover", "ledger", "release",
    "status", "verify", "close", "stop", "schedules",
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


BEGIN = ("transaction", "consume")  # what is awaited, or used in a block


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
    short = name.partition(".")[2]
    if short in RAISES_NOTHING:
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


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        (quire.Store, aio.AsyncStore),
        (quire.Transaction, aio.AsyncTransaction),
        (quire.Consumer, aio.AsyncConsumer),
    ],
)
def test_the_api_for_asyncio_is_the_interface(kind: type, made: type) -> None:
    """Each method is a coroutine with the same arguments and text, but for what begins a block."""
    assert members(kind).keys() - {"when_ready", "stop"} == members(made).keys()
    for name, value in members(made).items():
        expected = members(kind)[name]
        assert inspect.getdoc(value) == inspect.getdoc(expected), name
        if inspect.isfunction(expected):
            assert inspect.iscoroutinefunction(value) == (name not in BEGIN), name
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
    depth = {
        name: len([base for base in value.__mro__ if base in classes.values()])
        for name, value in classes.items()
    }
    assert shown.pop("NobodyReads") == 2  # a warning, which stands beside it
    assert shown == depth
    assert {name for name in classes if not hasattr(quire, name)} == set()  # to be caught

"""The interface as a table: a method of an interface is a row, whose facts a decorator tells.

Name, arguments, defaults and the type of the result are those of the annotated signature. By these
rows a joined store asks its owner, the owner answers, and a store object that lives on knows what
it may ask twice. A method without a decorator is not sent: it is made of others.

- TC1: only what is a row can be asked for. Arguments that a row does not name are passed over, and
  what is left out has its default; so a client of another release may know more, or less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, wraps
from operator import attrgetter
from typing import (
    Any,
    Concatenate,
    Final,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    get_type_hints,
    overload,
)

from quire.arguments import are_several
from quire.batches import delivered_messages
from quire.errors import InvalidArgument
from quire.libraries.late_imports import importing
from quire.messages.message import Message

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
P = ParamSpec("P")
R = TypeVar("R")

_FACTS: Final = "__call_facts__"
_TAKES_MORE: Final = 0x08  # inspect.CO_VARKEYWORDS


class Facts(NamedTuple):
    """What a call is besides its signature."""

    changes: bool  # something, so that its outcome matters where its answer does not come
    again: bool  # twice is as once
    queues: tuple[str, ...] = ()  # arguments that name a queue, which is another one after it
    waits: bool = False  # for other clients, up to `timeout` seconds
    of_one_owner: bool = False  # it names a transaction by a number, which the next owner lacks
    held: bool = False  # what it makes may end with its client, whom the owner tells as `holder`


@overload
def look(method: F) -> F: ...
@overload
def look(*, of_one_owner: bool = False) -> Callable[[F], F]: ...
def look(method: Any = None, *, of_one_owner: bool = False) -> Any:
    """A call that changes nothing."""
    return _told(method, Facts(False, True, of_one_owner=of_one_owner))


@overload
def change(method: F) -> F: ...
@overload
def change(
    *, again: bool = False, queues: str = "", of_one_owner: bool = False, held: bool = False
) -> Callable[[F], F]: ...
def change(
    method: Any = None,
    *,
    again: bool = False,
    queues: str = "",
    of_one_owner: bool = False,
    held: bool = False,
) -> Any:
    """A call that changes something. `queues`: the names of arguments, between blanks."""
    names = tuple(queues.split())
    return _told(method, Facts(True, again, names, of_one_owner=of_one_owner, held=held))


@overload
def step(method: F) -> F: ...
@overload
def step(*, waits: bool = False) -> Callable[[F], F]: ...
def step(method: Any = None, *, waits: bool = False) -> Any:
    """A part of an open transaction, which takes effect with its commit."""
    return _told(method, Facts(False, False, waits=waits))


def _told(method: Any, facts: Facts) -> Any:
    def tell(method: Any) -> Any:
        setattr(method, _FACTS, facts)
        return method

    return tell if method is None else tell(method)


class CallArguments(NamedTuple):
    """What a row's signature says."""

    plain: tuple[str, ...]  # those that may be given by their place
    needed: frozenset[str]
    names: frozenset[str]  # of all
    takes_more: bool  # options, each by its name
    several: tuple[str, ...]  # those that may be iterators


class CallRow:
    """A row: what `path` of a store, or a transaction, has by this name."""

    _arguments: CallArguments | None = None  # until its first call: of all rows few are made

    def __init__(self, method: Callable[..., Any], facts: Facts, path: str = "") -> None:
        self.name: Final[str] = method.__name__
        self.op: Final = f"{path}.{self.name}" if path else self.name
        self.facts: Final = facts
        self.method: Final = method
        self.target: Final[Callable[[Any], Any]] = attrgetter(path) if path else lambda it: it

    def arguments(self) -> CallArguments:
        """What its signature says."""
        found = self._arguments
        if found is None:
            found = self._arguments = _arguments_of(self.method)
        return found

    @cached_property
    def result(self) -> Any:
        """The type of what it returns."""
        return get_type_hints(self.method)["return"]

    @cached_property
    def brings_messages(self) -> bool:
        """Whether what it returns is messages, which do not travel as other values do."""
        return self.result in (delivered_messages.Messages, Message | None)

    def given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, those that were given. Raises TypeError, as Python does."""
        plain, needed, names, takes_more, several = self._arguments or self.arguments()
        found = dict(zip(plain, args, strict=False))
        found.update(kwargs)
        if (
            len(args) > len(plain)
            or len(found) < len(args) + len(kwargs)
            or not needed <= found.keys()
            or not (takes_more or found.keys() <= names)
        ):
            with importing():
                from inspect import signature  # which says what is wrong

            signature(self.method).bind(None, *args, **kwargs)
        for name in several:
            if name in found:
                found[name] = _listed(found[name])
        return found

    def told(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that came, as the method takes them (TC1). Raises InvalidArgument."""
        _, needed, names, takes_more, _ = self._arguments or self.arguments()
        found = {
            name: value
            for name, value in arguments.items()
            if name in names or (takes_more and name != "self")
        }
        missing = needed - found.keys()
        if missing:
            raise InvalidArgument(f"{self.op} misses {', '.join(sorted(missing))}")
        return found


def _arguments_of(method: Any) -> CallArguments:
    """Read from the function itself, as `inspect` takes longer to load than a command has."""
    code = method.__code__
    end = code.co_argcount
    plain, by_name = code.co_varnames[1:end], code.co_varnames[end : end + code.co_kwonlyargcount]
    defaults = method.__defaults__ or ()
    needed = {*plain[: len(plain) - len(defaults)], *by_name} - (method.__kwdefaults__ or {}).keys()
    hints = method.__annotations__
    return CallArguments(
        plain,
        frozenset(needed),
        frozenset((*plain, *by_name)),
        bool(code.co_flags & _TAKES_MORE),
        tuple(e for e in (*plain, *by_name) if str(hints.get(e)).startswith("Iterable")),
    )


def calls_of(interface: type, path: str = "") -> Iterator[CallRow]:
    """The rows of an interface, in its order."""
    for method in vars(interface).values():
        facts = getattr(method, _FACTS, None)
        if facts is not None:
            yield CallRow(method, facts, path)


def call_of(method: Callable[..., Any], path: str = "") -> CallRow:
    """The row that a method is."""
    return CallRow(method, getattr(method, _FACTS), path)


class Makes(Protocol):
    """What makes calls by their rows."""

    def make(self, row: CallRow, given: Mapping[str, Any]) -> Any:
        """What a call returns."""


def by_row(
    method: Callable[Concatenate[Any, P], R], path: str = ""
) -> Callable[Concatenate[Any, P], R]:
    """A method that is made by its row."""
    row = call_of(method, path)

    @wraps(method)
    def make(self: Makes, /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: R = self.make(row, row.given(args, kwargs))
        return found

    return make


def filled(interface: type, path: str) -> Callable[[C], C]:
    """A decorator of a class: what is a row of the interface, and not written there, is made so."""

    def fill(made: C) -> C:
        for row in calls_of(interface, path):
            if row.name not in vars(made):
                setattr(made, row.name, by_row(row.method, path))
        return made

    return fill


def _listed(value: object) -> object:
    """What can be gone through more than once, and sent; what is a mistake stays one."""
    return list(value) if are_several(value) else value

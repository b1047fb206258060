"""The interface as a table: a method of an interface is a row, whose facts a decorator tells.

Name, arguments, defaults and the type of the result are those of the annotated signature; a row has
a text and no body. By these rows a joined store asks its owner, the owner answers, and a store
object that lives on knows what it may ask twice. A method without a decorator is not sent: it is
made of others.

A subject (`store.admin`, `store.cron`, ...) is a class whose rows are made by the store behind it:
the store of this process has a handler for each, a joined one sends the row.

- TC1: only what is a row can be asked for. Arguments that a row does not name are passed over, and
  what is left out has its default; so a client of another release may know more, or less.
- TC2: a row says which rights a user must have on what its arguments name ("put queue:queue"), or
  that there is nothing to protect (""); `quire.remote.access` reads that. It also says which names
  its result shows. A row that says nothing about rights may not be served to users.
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
from quire.limits import PLACES_BYTES
from quire.messages.message import Message

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")

_FACTS: Final = "__call_facts__"
_TAKES_MORE: Final = 0x08  # inspect.CO_VARKEYWORDS


class Facts(NamedTuple):
    """The properties of a call besides its signature."""

    changes: bool  # something, so that its outcome matters where its answer does not come
    again: bool  # twice is as once
    queues: tuple[str, ...] = ()  # arguments that name a queue, which is another one after it
    waits: bool = False  # for other clients, up to `timeout` seconds
    of_one_owner: bool = False  # it is about what the next owner lacks, as a transaction's number
    held: bool = False  # what it makes may end with its client, whom the owner tells as `holder`
    long: bool = False  # handlers of signals run in it, where the owner makes it
    needs: str | None = None  # the rights that a user must have (TC2)
    shows: str = ""  # what of its result is shown to users who may see it
    brings: str = ""  # the argument that says how many bytes its answer has, see `answer_bytes`
    noted: bool = True  # a change is in the audit log; not what moves messages, as puts and gets


@overload
def look(method: F) -> F: ...
@overload
def look(
    *,
    of_one_owner: bool = False,
    long: bool = False,
    needs: str | None = None,
    shows: str = "",
    brings: str = "",
) -> Callable[[F], F]: ...
def look(
    method: Any = None,
    *,
    of_one_owner: bool = False,
    long: bool = False,
    needs: str | None = None,
    shows: str = "",
    brings: str = "",
) -> Any:
    """A call that changes nothing."""
    facts = Facts(
        False, True, of_one_owner=of_one_owner, long=long, needs=needs, shows=shows, brings=brings
    )
    return _marked(method, facts)


@overload
def change(method: F) -> F: ...
@overload
def change(
    *,
    again: bool = False,
    queues: str = "",
    of_one_owner: bool = False,
    held: bool = False,
    needs: str | None = None,
    shows: str = "",
    noted: bool = True,
) -> Callable[[F], F]: ...
def change(
    method: Any = None,
    *,
    again: bool = False,
    queues: str = "",
    of_one_owner: bool = False,
    held: bool = False,
    needs: str | None = None,
    shows: str = "",
    noted: bool = True,
) -> Any:
    """A call that changes something. `queues`: the names of arguments, between blanks."""
    names = tuple(queues.split())
    facts = Facts(
        True, again, names, of_one_owner=of_one_owner, held=held, needs=needs, shows=shows,
        noted=noted,
    )  # fmt: skip
    return _marked(method, facts)


@overload
def step(method: F) -> F: ...
@overload
def step(*, waits: bool = False, needs: str | None = None) -> Callable[[F], F]: ...
def step(method: Any = None, *, waits: bool = False, needs: str | None = None) -> Any:
    """A part of an open transaction, which takes effect with its commit."""
    return _marked(method, Facts(False, False, waits=waits, needs=needs))


def _marked(method: Any, facts: Facts) -> Any:
    def mark(method: Any) -> Any:
        setattr(method, _FACTS, facts)
        return method

    return mark if method is None else mark(method)


def answer_bytes(facts: Facts, arguments: Mapping[str, Any]) -> int:
    """Return how many bytes the answer has, where arguments tell: a number, or of several places.

    They are as they came, and not checked.
    """
    found = arguments.get(facts.brings)
    places = found if isinstance(found, list) else [[found]]
    lengths = [place[-1] for place in places if isinstance(place, (list, tuple)) and place]
    return min(sum(n for n in lengths if type(n) is int and n > 0), PLACES_BYTES)


class CallArguments(NamedTuple):
    """The arguments of a row's signature."""

    plain: tuple[str, ...]  # those that may be given by their place
    needed: frozenset[str]
    names: frozenset[str]  # of all
    takes_more: bool  # options, each by its name
    several: tuple[str, ...]  # those that may be iterators
    defaults: Mapping[str, Any]  # of those that may be left out


class CallRow:
    """A row: what `path` of a store, or a transaction, has by this name."""

    _arguments: CallArguments | None = None  # until its first call: of all rows few are made

    def __init__(self, method: Callable[..., Any], facts: Facts, path: str = "") -> None:
        self.name: Final[str] = method.__name__
        self.path: Final = path
        self.op: Final = f"{path}.{self.name}" if path else self.name
        self.facts: Final = facts
        self.method: Final = method
        self.target: Final[Callable[[Any], Any]] = attrgetter(path) if path else lambda it: it

    def arguments(self) -> CallArguments:
        """The arguments of its signature."""
        found = self._arguments
        if found is None:
            found = self._arguments = _arguments_of(unwrap(self.method))
        return found

    @cached_property
    def result(self) -> Any:
        """The type of what it returns."""
        return get_type_hints(self.method)["return"]

    @cached_property
    def brings_messages(self) -> bool:
        """True if it returns messages, which do not travel as other values do."""
        return self.result in (delivered_messages.Messages, Message | None)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, those that were given. Raises TypeError, as Python does."""
        plain, needed, names, takes_more, several, _ = self._arguments or self.arguments()
        found = dict(zip(plain, args, strict=False))
        found.update(kwargs)
        if (
            len(args) > len(plain)
            or len(found) < len(args) + len(kwargs)
            or not needed <= found.keys()
            or not (takes_more or found.keys() <= names)
        ):
            unwrap(self.method)(None, *args, **kwargs)  # which has no body, and says what is wrong
        for name in several:
            if name in found:
                found[name] = _listed(found[name])
        return found

    def decode_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that came, as the method takes them (TC1). Raises InvalidArgument."""
        _, needed, names, takes_more, _, _ = self._arguments or self.arguments()
        found = {
            name: value
            for name, value in arguments.items()
            if name in names or (takes_more and name != "self")
        }
        missing = needed - found.keys()
        if missing:
            raise InvalidArgument(f"{self.op} misses {', '.join(sorted(missing))}")
        return found


def unwrap(method: Callable[..., Any]) -> Callable[..., Any]:
    """The function that was written, without what is around it."""
    found: Callable[..., Any] = getattr(method, "__wrapped__", method)
    return found


def _arguments_of(method: Any) -> CallArguments:
    """Read from the function itself, as `inspect` takes longer to load than a command has."""
    code = method.__code__
    end = code.co_argcount
    plain, by_name = code.co_varnames[1:end], code.co_varnames[end : end + code.co_kwonlyargcount]
    last = method.__defaults__ or ()
    defaults = dict(zip(plain[len(plain) - len(last) :], last, strict=True))
    defaults |= method.__kwdefaults__ or {}
    hints = method.__annotations__
    return CallArguments(
        plain,
        frozenset({*plain, *by_name} - defaults.keys()),
        frozenset((*plain, *by_name)),
        bool(code.co_flags & _TAKES_MORE),
        tuple(e for e in (*plain, *by_name) if str(hints.get(e)).startswith("Iterable")),
        defaults,
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
    """A store, or a transaction, that makes calls by their rows."""

    def make(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        """Return what a call returns."""


def by_row(
    method: Callable[Concatenate[Any, P], R], path: str = ""
) -> Callable[Concatenate[Any, P], R]:
    """A method that is made by its row: by the object itself, or by what a subject is of."""
    row = call_of(method, path)
    maker: Callable[[Any], Any] = attrgetter("_of") if path else lambda it: it

    @wraps(method)
    def make(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: R = maker(self).make(row, row.bind(args, kwargs))
        return found

    return make


class Subject:
    """The calls of a store, or of a transaction, by one subject.

    Its rows, with a fact's decorator, are made by what it is of (`make`). It is made anew whenever
    it is asked for, as one that a store had would keep that from ending by itself.
    """

    __slots__ = ("_of",)
    _of: Any

    def __init_subclass__(cls, path: str = "") -> None:
        """`path`: where a store has it, whose rows they are."""
        super().__init_subclass__()
        for row in list(calls_of(cls, path)) if path else ():
            setattr(cls, row.name, by_row(row.method, path))

    def __init__(self, of: Any) -> None:
        self._of = of

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._of!r}>"


def _listed(value: object) -> object:
    """Return several items as a list, which can be gone through twice and sent; else the value."""
    return list(value) if are_several(value) else value

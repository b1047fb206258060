"""Coroutines made of an interface's methods, with their arguments and their texts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Protocol, Self, TypeVar

from quire.calls.call_table import CallRow, Facts
from quire.moments import Duration

from .pool import Calls

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Callable[..., object])


class Caller(Protocol):
    """An object with such coroutines."""

    _pool: Calls

    async def _call(self, call: Callable[[Any], R], *, in_thread: bool = False) -> R:
        """Make the call on the object behind this one, and return its result.

        `in_thread`: as of `Calls.run`.
        """


def awaited(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Caller, P], Coroutine[Any, Any, R]]:
    """The method as a coroutine."""
    name = method.__name__

    @functools.wraps(method)
    async def call(self: Caller, /, *args: P.args, **kwargs: P.kwargs) -> R:
        made: R = await self._call(
            lambda inner: getattr(inner, name)(*args, **kwargs),
            in_thread=any(map(_is_code, args)) or any(map(_is_code, kwargs.values())),
        )
        return made

    return call


def _is_code(argument: object) -> bool:
    """Return True for a function or a generator: who makes the call runs it, and it may wait."""
    return callable(argument) or hasattr(argument, "__next__")


def awaited_put(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Caller, P], Coroutine[Any, Any, R]]:
    """A method that may wait for room as a coroutine: it leaves threads to those who make room."""
    waiting = awaited(method)

    @functools.wraps(method)
    async def call(self: Caller, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async with self._pool.putting:
            return await waiting(self, *args, **kwargs)

    return call


class WaitingCaller(Protocol):
    """An object with coroutines that find something, or wait for it."""

    async def _find(
        self,
        timeout: Duration | None,
        look: Callable[[Any, float], R],
        *,
        takes: bool = False,
    ) -> R:
        """Return what the look finds within so many seconds."""


def found(
    method: Callable[Concatenate[Any, P], R], *, takes: bool = False
) -> Callable[Concatenate[WaitingCaller, P], Coroutine[Any, Any, R]]:
    """A method that waits until something is there as a coroutine, which waits without a thread.

    `takes`: what it finds it takes, and what is not there is not waited for.
    """
    row = CallRow(method, Facts(changes=takes, again=True))

    @functools.wraps(method)
    async def call(self: WaitingCaller, /, *args: P.args, **kwargs: P.kwargs) -> R:
        arguments = row.bind(args, kwargs)
        timeout = arguments.pop("timeout", 0.0)

        def look(inner: Any, seconds: float) -> R:
            made: R = getattr(inner, row.name)(**arguments, timeout=seconds)
            return made

        return await self._find(timeout, look, takes=takes)

    return call


def described_as(method: Callable[..., object]) -> Callable[[C], C]:
    """For a coroutine that takes what the method takes, and is told as it is."""

    def tell(coroutine: C) -> C:
        functools.update_wrapper(coroutine, method)
        return coroutine

    return tell


class Entered(Protocol):
    """The value of an `async with` block."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


E = TypeVar("E", bound=Entered)


class Beginning(Generic[E]):
    """An action that can be awaited, or entered with `async with`, once."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, E]]) -> None:
        self._begin = begin
        self._entered: E | None = None

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"this has no {name!r}, as it is not begun: await it first, or use it in an async with "
            "block"
        )

    def __await__(self) -> Generator[Any, Any, E]:
        return self._begin().__await__()

    async def __aenter__(self) -> E:
        self._entered = entered = await self._begin()
        return await entered.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._entered is not None
        await self._entered.__aexit__(kind, error, traceback)

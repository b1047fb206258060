"""Callbacks of a store or of a loop of it: checked when they are passed, and after their calls.

- CB1: a function that only makes a coroutine or a generator does nothing when it is called, and
  nobody would know. It is refused where it is given. One of which this shows only in what it
  returns (a lambda, a wrapper) has not done its work: `check_done` says so, by whoever called it.
- CB2: a callback is called in the midst of other threads' commits. What it raises is logged
  (`quire.callbacks`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType
from typing import Final, TypeVar, cast

from quire.errors import InvalidArgument
from quire.libraries.late_imports import importing
from quire.loggers import log_failure, logger

F = TypeVar("F")
_MAKES: Final = 0x20 | 0x80 | 0x200  # inspect.CO_GENERATOR, CO_COROUTINE and CO_ASYNC_GENERATOR

_log: Final = logger("quire.callbacks")
_KINDS: Final = (
    ("iscoroutinefunction", "a coroutine function (async def)"),
    ("isasyncgenfunction", "an asynchronous generator function (async def with yield)"),
    ("isgeneratorfunction", "a generator function (def with yield)"),
)


def check_function(what: str, function: F, instead: str) -> F:
    """A function that does its work when it is called (CB1). Raises InvalidArgument.

    `instead`: what to give, in words for a user.
    """
    if not callable(function):
        raise InvalidArgument(f"{what} {function!r:.100}: {instead}")
    kind = _kind_of(function)
    if kind is not None:
        raise InvalidArgument(
            f"{what} {function!r:.100} is {kind}, whose calls do nothing by themselves: {instead}"
        )
    return function


def check_takes(what: str, function: Callable[..., object], number: int, instead: str) -> None:
    """A function that can be called with so many arguments; one that hides what it takes may be.

    Raises InvalidArgument: else each message that it is called for would fail, and be put aside.
    """
    with importing():
        import inspect  # which takes long to load, and is needed where a handler is given

    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # as of some that are written in C
        return
    try:
        signature.bind(*(None,) * number)
    except TypeError as error:
        raise InvalidArgument(
            f"{what} {function!r:.100} cannot be called with {number} arguments ({error}): "
            f"{instead}"
        ) from None


def check_done(what: str, function: object, result: object) -> None:
    """Raises InvalidArgument for what a function returns that has its work still to do (CB1)."""
    if not isinstance(result, (Awaitable, Generator, AsyncGenerator)):
        return
    if isinstance(result, (Coroutine, Generator)):
        with suppress(Exception):  # of somebody else's code, if it has begun at all
            result.close()
    raise InvalidArgument(
        f"{what} {function!r:.100} returned {result!r:.100}, whose work is not done: give a "
        "function that has done its work when it returns"
    )


def check_callback(callback: Callable[[], None]) -> Callable[[], None]:
    """The callback, of which nothing is raised (CB2).

    Raises InvalidArgument for what is no function, or makes a coroutine or a generator.
    """
    check_function("callback", callback, "give a function without arguments")

    def call() -> None:
        try:
            check_done("callback", callback, callback())  # type: ignore[func-returns-value]
        except BaseException as error:  # noqa: BLE001 - of somebody else's code; it is logged
            log_failure(_log, error, "a callback of when_ready failed: %.200r", callback)

    return call


def _kind_of(function: object) -> str | None:
    """Return what it makes if it does nothing else, in words; None: a function like others."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return None  # what it makes is an object of it
    plain = function.__func__ if isinstance(function, MethodType) else function
    if isinstance(plain, FunctionType) and not (plain.__code__.co_flags & _MAKES or plain.__dict__):
        return None  # as nearly all are, and who waits gives one each time; nor is it marked
    with importing():
        import inspect  # which takes a while to load, and few give anything but plain functions

    # Of an object that can be called.
    method = inspect.getattr_static(type(function), "__call__", None)
    for question, kind in _KINDS:
        is_kind = getattr(inspect, question)
        if is_kind(function) or is_kind(method):
            return kind
    return None


def from_entry_point(group: str, what: str, name: str) -> object | None:
    """Return an installed package's object of the name, made if it is a class; None: there is none.

    `what`: in words, such as "order". Raises InvalidArgument where it cannot be loaded.
    """
    with importing():
        from importlib.metadata import entry_points  # dear, and most have none

    for found in entry_points(group=group, name=name):
        try:
            loaded = found.load()
            return loaded() if isinstance(loaded, type) else cast(object, loaded)
        except Exception as error:
            raise InvalidArgument(
                f"{what} {name!r} cannot be loaded from {found.value} ({error!r}): mend or "
                "install that package where the store's owner runs, and open the store again"
            ) from error
    return None

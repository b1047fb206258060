"""Functions of users: those that would do nothing when they are called are not taken in silence."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

import quire
from quire import aio, codecs
from quire.callbacks import check_callback, check_done, check_function, check_takes
from quire.databases import Inbox
from quire.definitions.order_code import register_order
from quire.definitions.queue_types import register_type
from quire.errors import InvalidArgument


async def coroutine(*_: object) -> None:
    """Does nothing before somebody awaits it."""


def generator(*_: object) -> Iterator[None]:
    """Does nothing before somebody goes through it."""
    yield


async def asynchronous_generator(*_: object) -> AsyncIterator[None]:
    """Both."""
    yield


class Called:
    """An object whose call makes a coroutine."""

    async def __call__(self, *_: object) -> None:
        """Does nothing before somebody awaits it."""

    async def method(self, *_: object) -> None:
        """The same."""


class Inherited(Called):
    """One more."""


LAZY: list[Callable[..., Any]] = [
    coroutine,
    generator,
    asynchronous_generator,
    Called(),
    Inherited(),
    Called().method,
    functools.partial(coroutine, 1),
    functools.partial(functools.partial(Called(), 1), 2),
    AsyncMock(),
]


@functools.wraps(coroutine)
def runs_it(*args: object) -> None:
    """A wrapper that has the work done, though it looks like what it wraps."""
    asyncio.run(coroutine(*args))


@functools.wraps(coroutine)
def passes_it_on(*args: object) -> Awaitable[None]:
    """One that does not."""
    return coroutine(*args)


HIDDEN: list[Callable[..., Any]] = [
    passes_it_on,
    lambda *_: coroutine(),
    lambda *_: generator(),
    lambda *_: asynchronous_generator(),
]


@pytest.mark.parametrize("function", LAZY)
def test_what_would_do_nothing_is_refused(function: Callable[..., Any]) -> None:
    """Wherever a function is taken: the error says what it is."""
    for take in (
        lambda: check_function("function", function, "give another"),
        lambda: check_callback(function),
        lambda: register_order("lazy", function),
        lambda: codecs.Codec("lazy", "text/lazy", function, bytes),
        lambda: codecs.Codec("lazy", "text/lazy", bytes, function),
        lambda: register_type("lazy", MagicMock(is_volatile=False, start=function)),
        lambda: register_type("lazy", MagicMock(is_volatile=False, stop=function)),
    ):
        with pytest.raises(InvalidArgument, match="whose calls do nothing by themselves"):
            take()


@pytest.mark.parametrize(
    "function", [print, runs_it, functools.partial(runs_it, 1), Called, MagicMock(), *HIDDEN]
)
def test_others_are_taken(function: Callable[..., Any]) -> None:
    """A wrapper is judged by what it does itself."""
    assert check_function("function", function, "give another") is function


@functools.wraps(lambda message: None)
def with_another(message: object, txn: object) -> None:
    """A wrapper that takes more than what it wraps."""


async def of_a_message(message: object) -> None:
    """A handler that does not take the transaction."""


def test_a_function_that_takes_too_few_is_refused() -> None:
    """Else each message would fail and be put aside; what a wrapper takes is what counts."""
    few: list[Callable[..., Any]] = [lambda _: None, lambda: None, lambda *_, more: None]
    for function in few:
        with pytest.raises(InvalidArgument, match="cannot be called with 2 arguments"):
            check_takes("handler", function, 2, "give another")
    enough: list[Callable[..., Any]] = [lambda a, b, c=1: None, with_another, print, MagicMock()]
    for function in enough:
        check_takes("handler", function, 2, "give another")
    handler: Any = of_a_message
    with pytest.raises(InvalidArgument, match="cannot be called with 2 arguments"):
        Inbox().handles("jobs", nullcontext)(few[0])

    async def main() -> None:
        async with aio.open(":memory:") as store:
            with pytest.raises(InvalidArgument, match="cannot be called with 2 arguments"):
                aio.AsyncWorkers(store).on("jobs")(handler)

    asyncio.run(main())


def test_a_store_for_asyncio_that_is_not_awaited_says_so() -> None:
    """Where somebody forgets to."""
    begun: Any = aio.open(":memory:")
    with pytest.raises(AttributeError, match="await it first, or use it in an async with block"):
        _ = begun.put


@pytest.mark.parametrize("function", HIDDEN)
@pytest.mark.filterwarnings("error")
def test_what_is_returned_undone_is_told(
    function: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """By an error, and of a callback by the log; no coroutine is left behind to be warned of."""
    with pytest.raises(InvalidArgument, match="whose work is not done"):
        check_done("function", function, function())
    with caplog.at_level(logging.ERROR, "quire.callbacks"):
        check_callback(function)()
    assert "whose work is not done" in caplog.text


@pytest.mark.parametrize("result", [None, 1, [], iter([]), MagicMock(), runs_it])
def test_other_results_are_as_good_as_none(result: object) -> None:
    """What a function returns besides is its own business."""
    check_done("function", print, result)


def test_a_task_is_no_work_done() -> None:
    """Nor is a future: who takes it for done would lose what fails later."""

    async def main() -> None:
        task = asyncio.ensure_future(coroutine())
        with pytest.raises(InvalidArgument):
            check_done("function", print, task)
        await task

    asyncio.run(main())


def test_a_coroutine_that_does_not_end_is_no_matter() -> None:
    """What it raises when it is closed is not in the way of the error."""

    async def stubborn() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            raise ZeroDivisionError

    made: Coroutine[Any, Any, None] = stubborn()
    made.send(None)
    with pytest.raises(InvalidArgument):
        check_done("function", print, made)


def test_workers_of_a_store_for_asyncio(store_path: str) -> None:
    """They are for stores that wait."""

    async def main() -> None:
        async with aio.open(store_path) as store:
            with pytest.raises(InvalidArgument, match=r"quire\.open"):
                quire.Workers(store)  # type: ignore[arg-type]

    asyncio.run(main())

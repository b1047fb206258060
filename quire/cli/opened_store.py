"""The store that a command is for: opened as a program does, or looked at."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

from quire.libraries.late_imports import importing
from quire.opening import checked_path
from quire.opening import open as open_store

from .command import RunCommand

T = TypeVar("T")


def opened(options: argparse.Namespace) -> Any:
    """The store, to be changed: owned, or joined. It must be there."""
    path = checked_path(options.path)  # a command ends with what it would have in memory
    return open_store(path, create=False, network_file_system=options.network_file_system)


def calling(call: str, *names: str) -> RunCommand:
    """Return what runs a command that is one call of a store, with these of its arguments."""

    def run(options: argparse.Namespace) -> None:
        with opened(options) as store:
            attrgetter(call)(store)(*(getattr(options, name) for name in names))

    return run


def seen(options: argparse.Namespace, action: Callable[[Any], T]) -> T:
    """Return the result of an action on the store, which is not owned for it."""
    with importing():
        from quire.read_only import look

    return look(options.path, action)


def creation(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options by which a store may be made, as far as they are on the line."""
    names = ("data_files", "warn_below_bytes", "refuse_below_bytes", "timings")
    found = {n: v for n in names if (v := getattr(options, n, None)) is not None}
    return {"network_file_system": options.network_file_system, **found}


def source_parts(source: str) -> tuple[str, str | None]:
    """QUEUE, or QUEUE/SUBSCRIPTION."""
    queue, _, subscription = source.partition("/")
    return queue, subscription or None

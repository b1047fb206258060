"""A command of the command line: its words, its arguments, and what runs it."""

from __future__ import annotations

import argparse
import enum
from collections.abc import Callable
from typing import NamedTuple

RunCommand = Callable[[argparse.Namespace], "int | None"]
Arguments = Callable[[argparse.ArgumentParser], None]


class ExitStatus(enum.IntEnum):
    """How a command ends."""

    DONE = 0
    ERROR = 1  # also damage that verify or dump has found
    USAGE = 2  # it was typed wrongly
    NOTHING = 3  # there was nothing to get, to move, ...
    OWNED = 75  # of serve: another process owns the store
    INTERRUPTED = 130  # as a shell says of one that Ctrl-C has ended: 128 and the signal's number
    NOT_READ = 141  # the same of SIGPIPE


def _nothing(parser: argparse.ArgumentParser) -> None:
    """No arguments but the store's path."""


class Command(NamedTuple):
    """One of them; `quire NAME PATH ...`."""

    name: str  # as it is typed: "put", "create-queue", or "graph ls"
    help: str  # what it does, in the list of all
    run: RunCommand  # the exit status; None is 0
    arguments: Arguments = _nothing  # adds those behind the path
    more: str = ""  # what its --help says besides: paragraphs, and lines to try
    calls: tuple[str, ...] = ()  # the calls of a program that do the same, as errors name them

"""A command of the command line: its words, its arguments, and what runs it."""

from __future__ import annotations

import argparse
import enum
from collections.abc import Callable
from typing import Any, Final, NamedTuple

RunCommand = Callable[[argparse.Namespace], "int | None"]
Argument = Callable[[argparse.ArgumentParser], object]
"""Adds an argument to a command's parser, or several that belong together."""


class ExitStatus(enum.IntEnum):
    """The exit statuses of commands."""

    DONE = 0
    ERROR = 1  # also damage that verify or dump has found
    USAGE = 2  # it was typed wrongly
    NOTHING = 3  # there was nothing to get, to move, ...
    OWNED = 75  # of serve: another process owns the store
    INTERRUPTED = 130  # as a shell says of one that Ctrl-C has ended: 128 and the signal's number
    NOT_READ = 141  # the same of SIGPIPE


def argument(*names: str, **settings: Any) -> Argument:
    """Return an argument as `ArgumentParser.add_argument` takes it."""
    return lambda parser: parser.add_argument(*names, **settings)


JSON: Final = argument("--json", action="store_true", help="as JSON")


ARCHIVE: Final = ("URL", "the archive: a directory, or the URL of an object store")

USERS: Final = ("FILE", "the file of users, which quire serve --users has")


class Command(NamedTuple):
    """A command; `quire NAME PATH ...`."""

    name: str  # as it is typed: "put", "create-queue", or "graph ls"
    help: str  # what it does, in the list of all
    run: RunCommand  # the exit status; None is 0
    arguments: tuple[Argument, ...] = ()  # behind the path
    more: str = ""  # what its --help says besides: paragraphs, and lines to try
    calls: tuple[str, ...] = ()  # the calls of a program that do the same, as errors name them
    place: tuple[str, str] = ("PATH", "the store's directory")  # the first argument, and its help

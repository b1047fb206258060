"""Commands for the store as a whole: serving it, stopping and starting it, how it is."""

from __future__ import annotations

import argparse
import os
from typing import Final

from quire.cli.command import Command
from quire.cli.opened_store import creation, opened, seen
from quire.cli.printing import print_json, print_tree
from quire.cli.typed_values import number, seconds
from quire.opening import serve

from .queues import FILES_HELP


def _serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--linger", type=seconds, metavar="S", help="end after so many seconds without a client"
    )
    parser.add_argument(
        "--no-create", dest="create", action="store_false", help="never make a store"
    )
    parser.add_argument(
        "--no-wait",
        dest="wait",
        action="store_false",
        help="end at once, with status 75, where another process owns the store",
    )
    parser.add_argument("--data-files", type=number, metavar="N", help=FILES_HELP)


def _serve(options: argparse.Namespace) -> None:
    print(f"process {os.getpid()} opens {options.path}", flush=True)
    serve(
        options.path,
        options.linger,
        create=options.create,
        wait=options.wait,
        say=lambda line: print(line, flush=True),
        **creation(options),
    )
    print(f"process {os.getpid()} closed {options.path}", flush=True)


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")


def _status(options: argparse.Namespace) -> None:
    status = seen(options, lambda store: store.status())
    if options.json:
        print_json(status)
    else:
        print_tree(status)


def _switch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--puts", action="store_true", help="for puts only")
    parser.add_argument("--gets", action="store_true", help="for gets only")


def _disable(options: argparse.Namespace) -> None:
    _switch(options, to=False)


def _enable(options: argparse.Namespace) -> None:
    _switch(options, to=True)


def _switch(options: argparse.Namespace, *, to: bool) -> None:
    both = not (options.puts or options.gets)
    change = {n: to for n in ("puts", "gets") if both or getattr(options, n)}
    with opened(options) as store:
        for name, is_on in store.admin.switch(**change).items():
            print(f"{name}: {'on' if is_on else 'off'}")


COMMANDS: Final = (
    Command(
        "serve",
        "own a store and serve it to other processes, until a signal comes",
        _serve,
        _serve_arguments,
        "Nobody needs it: the first process that opens a store owns it, and serves the others. It\n"
        "is for a store that shall stay open while programs come and go: docs/sharing.md. Where\n"
        "another process owns the store already, it waits, and takes over when that one ends.",
    ),
    Command(
        "status", "show how a store is, in numbers", _status, _status_arguments, calls=("status",)
    ),
    Command(
        "disable",
        "stop the whole store for puts, gets or both",
        _disable,
        _switch_arguments,
        "What was put and got before may be committed. It stays so until `enable`.",
    ),
    Command(
        "enable",
        "let puts, gets or both in again",
        _enable,
        _switch_arguments,
        calls=("admin.switch",),
    ),
)

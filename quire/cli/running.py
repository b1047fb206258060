"""Running a command, and how it ends (LN3)."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Sequence

from quire.errors import QuireError, StoreLocked
from quire.loggers import show_warnings

from . import error_hints
from .command import ExitStatus
from .command_line import read_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    show_warnings("quire")
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except BrokenPipeError:  # who reads our output has seen enough
        with contextlib.suppress(OSError):
            sys.stdout.close()
        return ExitStatus.NOT_READ
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    options = read_line(arguments)
    options.in_commands = lambda text: error_hints.in_commands(text, options.path)
    if sys.stdout is None:  # what cannot be shown is not done
        print("quire: standard output is closed", file=sys.stderr)
        return ExitStatus.ERROR
    if isinstance(sys.stdout, io.TextIOWrapper):  # what it cannot say is escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda warning, *_, **__: _show(warning, options.path)
            status = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (QuireError, OSError) as error:
        _show(error, options.path)
        if options.command == "serve" and isinstance(error, StoreLocked):
            return ExitStatus.OWNED
        return ExitStatus.ERROR
    return status or ExitStatus.DONE


def _show(what: Warning | Exception | str, path: str) -> None:
    """Print a warning or an error in one line, without a line of Quire's code."""
    message = " ".join(error_hints.in_commands(str(what), path).split())
    kind = "warning" if isinstance(what, Warning) else type(what).__name__
    print(f"quire: {kind}: {message}", file=sys.stderr)

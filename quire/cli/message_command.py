"""A command of the user's that handles a message: it gets the payload, and says if it succeeded.

- EX1: the message is kept until the command has ended, and is done with exactly if its status is 0.
  Signals end the command, and not the waiting for it: SIGTERM and SIGHUP are handed on to it;
  Ctrl-C it gets by itself, with all of its terminal. What is ignored here is ignored by it, too.
"""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from quire.libraries.late_imports import importing
from quire.limits import COMMAND_VARIABLE_BYTES
from quire.messages.message import MESSAGE_COLUMNS

from .printing import write_message

if TYPE_CHECKING:
    import subprocess

_PREFIX: Final = "QUIRE_"
_HANDED_ON: Final = (signal.SIGTERM, signal.SIGHUP)


def environment_of(message: Any, source: str) -> dict[str, str]:
    """Return the fields of a message as variables of an environment; those that it has.

    What no environment can hold is left out: `--json` has it.
    """
    fields = {name: getattr(message, name) for name in MESSAGE_COLUMNS if name != "payload"}
    fields |= {"queue": message.queue, "source": source}
    attributes = json.dumps(dict(message.attributes))
    found = {name: str(value) for name, value in fields.items() if value is not None}
    named = {_PREFIX + name.upper(): value for name, value in found.items()}
    named[_PREFIX + "ATTRIBUTES"] = attributes
    return {name: value for name, value in named.items() if _fits(name, value)}


def _fits(name: str, value: str) -> bool:
    text = f"{name}={value}\0".encode()  # as it lies there
    return "\0" not in value and len(text) <= COMMAND_VARIABLE_BYTES


class CommandOutcome(NamedTuple):
    """The end of a command that has handled a message."""

    failure: str  # in words; "": it has succeeded
    stopped_by: int | None  # the signal that this process got meanwhile


def run_on(command: str, message: Any, options: argparse.Namespace) -> CommandOutcome:
    """Run a command of a shell on a message, and wait for its end (EX1)."""
    with importing():
        import os
        import subprocess

    with _waited_for() as (child, signals):
        process = subprocess.Popen(
            command,
            shell=True,
            stdin=subprocess.PIPE,
            env={**os.environ, **environment_of(message, options.source)},
        )
        child.append(process)
        for number in signals:  # which came while it began
            if number in _HANDED_ON:
                process.send_signal(number)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it need not read
            write_message(process.stdin, message, options, is_line=False)
        with suppress(BrokenPipeError):
            process.stdin.close()
        status = process.wait()
    failure = f"the command ended with status {status}" if status else ""
    if status < 0:
        failure = f"the command was ended by signal {-status}"
    return CommandOutcome(failure, signals[0] if signals else None)


ChildAndSignals = tuple[list["subprocess.Popen[bytes]"], list[int]]


@contextmanager
def _waited_for() -> Iterator[ChildAndSignals]:
    """For a block that begins a process and waits for it, whatever signals come."""
    child: list[subprocess.Popen[bytes]] = []
    signals: list[int] = []
    before: dict[int, Any] = {}

    def note(number: int, _: FrameType | None) -> None:
        signals.append(number)
        for process in child if number in _HANDED_ON else ():
            process.send_signal(number)

    try:
        number: int
        for number in (*_HANDED_ON, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it: of both
                before[number] = signal.signal(number, note)
        yield child, signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

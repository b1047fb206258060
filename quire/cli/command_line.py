"""Reading a command line: which command it is, and its options, wherever they stand (LN2)."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Final, NoReturn

from quire import __version__
from quire.definitions.near_names import nearest

from .command import ARCHIVE, USERS, Command, ExitStatus
from .command_table import NAMES, SUBJECTS, command_named

_NUMBER: Final = re.compile(r"-\d+\.?\d*|-\.\d+")
_HEAD: Final = """\
usage: quire COMMAND PATH [ARGUMENTS] [OPTIONS]

A transactional multi-queue engine: one store is one directory, PATH. Commands work beside the
programs that have the store open, or alone. `quire COMMAND --help` tells the rest.

for a start:
  quire create-queue shop.quire orders
  quire put shop.quire orders '2 apples'
  quire get shop.quire orders"""
_STATUSES: Final = """\
exit status:
  0    done
  1    an error, which is one line on standard error; verify, dump: damage was found
  2    the command was typed wrongly, and nothing was done
  3    there was nothing to do: get, move, redrive, cancel, shutdown
  75   serve: another process owns the store
  130  Ctrl-C
  141  who reads the output has gone; what was not printed was not taken
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """A help text as wide as the terminal.

    Argparse makes one for each argument, and asks `shutil` how wide.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


@cache
def _columns() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    with suppress(AttributeError, ValueError, OSError):  # it is closed, or no terminal
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    return 80


class CommandParser(argparse.ArgumentParser):
    """The parser of a command: the options first and then the arguments, in whatever order they
    came.
    """

    def __init__(self, command: Command) -> None:
        super().__init__(
            prog=f"quire {command.name}",
            description="\n\n".join(filter(None, (_sentence(command.help), command.more))),
            formatter_class=_Help,
            allow_abbrev=False,
        )
        self.set_defaults(run=command.run, command=command.name)
        place, text = command.place
        self.add_argument("path", metavar=place, help=text)
        if place not in (ARCHIVE[0], USERS[0]):
            self.add_argument(
                "--network-file-system",
                action="store_true",
                help="the store may be opened on one (docs/deployment.md)",
            )
        for add_argument in command.arguments:
            add_argument(self)
        words = [_shown(action) for action in self._get_positional_actions()]
        self.usage = " ".join((self.prog, *words, "[OPTIONS]"))

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """The values of a line; ends the program with 2 where it is wrong, with 0 after --help."""
        found, further = self.parse_known_args(self._options_first(list(words)))
        if further:
            self.error(f"{' '.join(further)!r} is too much: put words with spaces between quotes")
        return found

    def _options_first(self, words: list[str]) -> list[str]:
        options: list[str] = []
        arguments: list[str] = []
        while words:
            word = words.pop(0)
            if word == "--":
                arguments += words
                break
            if len(word) == 1 or not word.startswith("-") or _NUMBER.fullmatch(word):
                arguments.append(word)
                continue
            name, equals, _ = word.partition("=")
            action = self._option_string_actions.get(name if word.startswith("--") else word[:2])
            if action is None:
                self._refuse(name)
            is_whole = equals or (not word.startswith("--") and len(word) > 2)
            if action.nargs == 0 or is_whole or not words:
                options.append(word)
            elif word.startswith("--"):
                options.append(f"{word}={words.pop(0)}")
            else:
                options.append(word + words.pop(0))
        return [*options, "--", *arguments]

    def _refuse(self, name: str) -> NoReturn:
        near = did_you_mean(name, self.option_names())
        dashes = "; what begins with a dash and is no option goes behind --"
        self.error(f"there is no option {name}{near or dashes}")

    def option_names(self) -> list[str]:
        """Return the options as they are typed: --json."""
        return [name for name in self._option_string_actions if name.startswith("--")]

    def error(self, message: str) -> NoReturn:
        """The command was typed wrongly."""
        print(f"{self.prog}: {message}", file=sys.stderr)
        print(f"usage: {self.usage}; {self.prog} --help tells more", file=sys.stderr)
        sys.exit(ExitStatus.USAGE)


def parser_of(name: str) -> CommandParser:
    """The parser of a command."""
    return CommandParser(command_named(name))


def read_line(words: Sequence[str]) -> argparse.Namespace:
    """The values of a whole line, without the program's name. Ends the program as `read` does."""
    name, rest = _command_of(list(words))
    return parser_of(name).read(rest)


def did_you_mean(word: str, known: Iterable[str], write: Callable[[str], str] = str) -> str:
    """Return a question about the nearest word, or nothing where none is near."""
    near = nearest(word, known)
    return "" if near is None else f": did you mean {write(near)}?"


def _command_of(words: list[str]) -> tuple[str, list[str]]:
    """The command's name, and the words without it."""
    known = NAMES
    groups = {name.partition(" ")[0] for name in known if " " in name}
    if words[:1] == ["help"]:  # `quire help put`
        words = [*words[1:], "--help"]
    until = words.index("--") if "--" in words else len(words)
    plain = [at for at, word in enumerate(words[:until]) if not word.startswith("-")]
    for at in plain:
        if words[at] in known:
            return words[at], words[:at] + words[at + 1 :]
        if words[at] in groups:
            return _of_group(words, at, [n for n in plain if n > at])
        if at == 0:
            _refuse_command(words[0], [*known, *groups])
    if "--version" in words:
        print(f"quire {__version__}")
        sys.exit(0)
    if {"-h", "--help"} & {*words}:
        print(_help(), end="")
        sys.exit(0)
    if words:
        _refuse_command(words[plain[0] if plain else 0], [*known, *groups])
    print(_help(), end="", file=sys.stderr)
    sys.exit(ExitStatus.USAGE)


def _of_group(words: list[str], at: int, after: list[int]) -> tuple[str, list[str]]:
    group, known = words[at], NAMES
    names = [name for name in known if name.startswith(f"{group} ")]
    if after:
        name = f"{group} {words[after[0]]}"
        if name in known:
            return name, [word for n, word in enumerate(words) if n not in (at, after[0])]
        _refuse_command(name, names)
    if {"-h", "--help"} & {*words}:
        print("\n".join((f"usage: quire {group} COMMAND PATH ...\n", *_rows(names))))
        sys.exit(0)
    print(f"quire: {group} goes on with a command: give one of {', '.join(names)}", file=sys.stderr)
    sys.exit(ExitStatus.USAGE)


def _refuse_command(word: str, known: Iterable[str]) -> NoReturn:
    near = did_you_mean(word, known, lambda name: f"quire {name}")
    print(
        f"quire: there is no command {word}{near or '; quire --help lists them'}", file=sys.stderr
    )
    sys.exit(ExitStatus.USAGE)


def _help() -> str:
    """Return the list of all commands, by subject."""
    parts = [_HEAD]
    parts += [
        "\n".join(
            (f"{subject}:", *_rows(name for _, names in several for name in names.split(", ")))
        )
        for subject, several in SUBJECTS.items()
    ]
    return "\n\n".join((*parts, _STATUSES))


def _rows(names: Iterable[str]) -> list[str]:
    return [f"  {name:<18} {command_named(name).help}" for name in names]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _shown(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    match action.nargs:
        case "?":
            return f"[{name}]"
        case "*":
            return f"[{name} ...]"
        case "+":
            return f"{name} ..."
    return name

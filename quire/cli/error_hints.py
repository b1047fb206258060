"""Errors say what to do as calls of a program; on the command line a command does it.

"create it with create_queue('orders')" becomes "create it with quire create-queue shop.quire
orders". What no command does stays as it is.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from functools import cache
from typing import Any

from .command import Command
from .command_line import CommandParser
from .command_table import commands

_CALL = re.compile(r"\b((?:store\.)?(?:[a-z_]+\.)?[a-z_]+)\(([^()]*)\)")
_WORD = re.compile(r"\b(?:store\.([a-z]+\.[a-z_]+)|([a-z]+_[a-z_]+))\b(?![=(]|\.\w)")


def in_commands(text: str, path: str) -> str:
    """An error's text, with commands for a store at the path in the stead of calls."""
    text = text.replace("network_file_system=True", "--network-file-system")  # of every command
    text = text.replace("with exist_ok=True", "with --exist-ok")  # of `create-queue` itself
    text = _CALL.sub(lambda found: _command_of_call(found, path) or found[0], text)
    return _WORD.sub(lambda found: _command_of_word(found[1] or found[2]) or found[0], text)


@cache
def _by_call() -> dict[str, Command]:
    return {call: command for command in commands().values() for call in command.calls}


def _command_of_word(call: str) -> str | None:
    """Return the command for a call that is only named."""
    command = _by_call().get(call)
    return None if command is None else f"quire {command.name}"


def _command_of_call(found: re.Match[str], path: str) -> str | None:
    command = _by_call().get(found[1].removeprefix("store."))
    arguments = _arguments(found[2])
    if command is None or arguments is None:
        return None
    positional, named = arguments
    words = [*positional, *_named_words(command, named)]
    return " ".join(("quire", command.name, *map(shlex.quote, (path, *words))))


def _arguments(text: str) -> tuple[list[str], dict[str, Any]] | None:
    """Return the arguments of a call; None: they are no values, but words about them."""
    try:
        call = ast.parse(f"call({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        positional = [
            node.id if isinstance(node, ast.Name) else str(_value(node)) for node in call.args
        ]
        return positional, {str(k.arg): _value(k.value) for k in call.keywords}
    except (SyntaxError, ValueError):
        return None


def _value(node: ast.expr) -> Any:
    return "..." if isinstance(node, ast.Name) else ast.literal_eval(node)


def _named_words(command: Command, named: dict[str, Any]) -> list[str]:
    """Return keyword arguments as options, where the command has them; else as NAME=VALUE."""
    options = CommandParser(command).option_names()
    words = []
    for name, value in named.items():
        option = f"--{name.replace('_', '-')}"
        text = value if isinstance(value, str) else json.dumps(value)
        if option in options:
            words += [option] if value is True else [option, text]
        else:
            words.append(f"{name}={text}")
    return words

"""The dump of a store that may have an owner, which adds what is not in the files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from quire.env import Env, OsEnv, check_env
from quire.libraries.late_imports import importing
from quire.opening import checked_path

if TYPE_CHECKING:
    from .items import Item


def dump(
    path: str,
    *,
    journal: bool = False,
    queue: str | None = None,
    messages: bool = False,
    pages: bool = False,
    checkpoint: bool = False,
    limit: int | None = None,
    start: int = 0,
    offline: bool = False,
    env: Env | None = None,
) -> Iterator[Item]:
    """List the store at `path` as its files are; nothing is changed, locked or recovered.

    `journal`: every record of it. `queue`: the records of the queue of that name (or "#" and its
    id), with `messages` also the messages. `pages`: what each page of the data files holds, and the
    files of large transactions. `checkpoint`: all that it holds. Without a choice: a summary.
    `offline`: an owner is not asked for its open transactions. `limit` bounds
    each list, `start` is where it begins: an LSN, or a position in the queue.

    The items are the values of `quire.file_dump.items`, whose `as_json` makes plain values of
    them; `in_words` of `quire.file_dump.words` makes lines. Damage is an item (`Finding`), never
    an exception. An owner may go on meanwhile.

    Raises StoreNotFound, QueueNotFound, InvalidArgument, and StoreVersion for a checkpoint that a
    newer release wrote.
    """
    with importing():
        from .listing import Choices, dump_files
        from .owner import ask_owner

    path = checked_path(path)
    machine = check_env(env)
    choices = Choices(journal, queue, messages, pages, checkpoint, limit, start)
    if not offline and isinstance(machine, OsEnv):
        choices = replace(choices, owner=ask_owner(machine, path, queue, pages=pages))
    return dump_files(machine, path, choices)

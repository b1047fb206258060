"""What a store's files say, in words: for people and programs, whatever state the store is in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from quire.env import Env, OsEnv

if TYPE_CHECKING:
    from quire.engine.dump import Item


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
    env: Env | None = None,
) -> Iterator[Item]:
    """List the store at `path` as its files are; nothing is changed, locked or recovered.

    `journal`: every record of it. `queue`: the records of the queue of that name (or "#" and its
    id), with `messages` also the messages. `pages`: what each page of the data files holds, and the
    files of large transactions. `checkpoint`: all that it holds. Without a choice: a summary.
    `limit` bounds each list, `start` is where it begins: an LSN, or a position in the queue.

    The items are the values of `quire.engine.dump`: `in_words` makes lines of them, `as_json` plain
    values. Damage is an item (`Finding`), never an exception. An owner may go on meanwhile.

    Raises StoreNotFound, QueueNotFound, InvalidArgument.
    """
    from quire.engine.dump import Choices, dump_files
    from quire.opening import checked_path

    choices = Choices(
        journal=journal,
        queue=queue,
        messages=messages,
        pages=pages,
        checkpoint=checkpoint,
        limit=limit,
        start=start,
    )
    return dump_files(OsEnv() if env is None else env, checked_path(path), choices)

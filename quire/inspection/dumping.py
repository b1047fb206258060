"""What a store's files say, in words: for people and programs, whatever state the store is in.

- The owner, where there is one that can be reached, is asked for what is not in the files: where
  its journal ends, so that a group that it is just writing is not taken for a torn one, which
  transactions are open, and how their records stand in a queue. Without it the files alone are
  told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from quire.env import Env, OsEnv, check_env
from quire.errors import QueueNotFound, QuireError, RemoteError
from quire.libraries import pa
from quire.libraries.late_imports import importing
from quire.limits import MOST_TOLD_RECORDS
from quire.opening import checked_path

if TYPE_CHECKING:
    from quire.engine.dump import Choices, Owner
    from quire.remote import RemoteStore
    from quire.reports.dump_items import Item
    from quire.reports.info import QueueRecord


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

    The items are the values of `quire.reports.dump_items`, whose `as_json` makes plain values of
    them; `in_words` of `quire.reports.dump_words` makes lines. Damage is an item (`Finding`), never
    an exception. An owner may go on meanwhile.

    Raises StoreNotFound, QueueNotFound, InvalidArgument, and StoreVersion for a checkpoint that a
    newer release wrote.
    """
    with importing():
        from quire.engine.dump import Choices, dump_files

    path = checked_path(path)
    machine = check_env(env)
    choices = Choices(journal, queue, messages, pages, checkpoint, limit, start)
    if not offline and isinstance(machine, OsEnv):
        choices = replace(choices, owner=_ask_owner(machine, path, choices))
    return dump_files(machine, path, choices)


def _ask_owner(env: Env, path: str, choices: Choices) -> Owner | None:
    """What the owner tells; None if there is none, or none that answers."""
    with importing():
        from quire.engine.dump import Owner
        from quire.remote import join

    try:
        store = join(env, path)
        if store is None:
            return None
        with store:
            records = _ask_for_records(store, choices)
            status = store.status()  # after them: what has ended in between is known to have ended
    except (QuireError, OSError, ValueError):  # an address may be damaged, too
        return None
    except pa.ArrowException:
        return None
    return Owner(status["journal"]["end_lsn"], tuple(status["transactions"]), records)


def _ask_for_records(store: RemoteStore, choices: Choices) -> dict[str, list[QueueRecord]]:
    """Of the queue that is asked for, and of those in whose pages open transactions have some."""
    names = set() if choices.queue is None else {choices.queue}
    if choices.queue is not None and choices.queue.startswith("#"):
        names = {queue.name for queue in store.queues()}  # it does not tell their numbers
    if choices.pages:
        open_ones = store.status()["transactions"]
        names |= {name for told in open_ones if told["spilled_bytes"] for name in told["queues"]}
    records: dict[str, list[QueueRecord]] = {}
    for name in names:
        with suppress(QueueNotFound, RemoteError):  # it may be of an older release
            records[name] = store.admin.queue_records(name, limit=MOST_TOLD_RECORDS)
    return records

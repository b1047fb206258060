"""The hold on a subscription: one source streams by it, for as long as its process lives.

YH1. No two sources stream a queue by the same subscription at the same time, whether they are of
    one query (each load is a source, however often its rows are used, or several: one_load.py) or
    of several: what one of them has committed would be released before the other has read it.
- A hold ends with its process, however that ends, or a few seconds later where the store is at a
  server (served_names.py). So a query that was killed can start again, and nothing has to be
  cleaned up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from quire.env import Env, FileLock, OsEnv
from quire.errors import QueueInUse
from quire.spark_graphs import connection
from quire.spark_graphs.limits import HOLD_PATIENCE_SECONDS, HOLD_PAUSE_SECONDS

from .served_names import ServedNames


def hold(path: str, queues: Iterable[str], subscription: str, env: Env | None = None) -> FileLock:
    """The hold of a subscription to all of the queues, until it is released.

    A source that is ending, as that of a query which is started again, is waited for. Raises
    QueueInUse when it goes on for HOLD_PATIENCE_SECONDS.
    """
    env = env or OsEnv()
    queues_by_name = {f"{queue}/{subscription}": queue for queue in sorted(queues)}
    return take(path, list(queues_by_name), lambda n: in_use(queues_by_name[n], subscription), env)


def take(path: str, names: Sequence[str], error: Callable[[str], QueueInUse], env: Env) -> FileLock:
    """Take all names, waiting for them. Raises the error for the first that stays taken."""
    deadline = env.monotonic() + HOLD_PATIENCE_SECONDS
    while True:
        found = try_to_take(path, names, env)
        if not isinstance(found, str):
            return found
        if env.monotonic() + HOLD_PAUSE_SECONDS > deadline:
            raise error(found)
        env.sleep(HOLD_PAUSE_SECONDS)


def try_to_take(path: str, names: Sequence[str], env: Env) -> FileLock | str:
    """Try to lock the names as `Env.lock_names` does."""
    if not connection.is_served(path):
        return env.lock_names(f"{path}/run/readers", names)
    try:
        return ServedNames(path, names)
    except QueueInUse as error:
        return next((name for name in names if repr(name) in str(error)), names[0])


def in_use(queue: str, subscription: str) -> QueueInUse:
    """The queue is streamed by the subscription already."""
    return QueueInUse(
        f"queue '{queue}' is being streamed by subscription '{subscription}' already, by another "
        "query or by another load in this one, and each would release what the other has not "
        "read. Give each load an option 'subscription' of its own. In one query the rows of one "
        "load may be used twice; to join them with themselves in a graph, or where the load has "
        "the option 'checkpointLocation', rename all columns of one side (`select` with `alias`), "
        "else Spark makes two loads of the one"
    )

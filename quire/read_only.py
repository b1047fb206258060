"""Looking at a store without owning it.

- An owner that can be reached is asked. Where nobody owns the store, its files are looked at by the
  engine itself, in an environment that changes nothing (`quire.env.look_env`): also on a medium
  that cannot be written, and without being in anybody's way.
- What was seen in the files counts only if nobody owned the store meanwhile; otherwise the look is
  made again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from quire.engine.layout import Layout, naming_salvage
from quire.env import Env, check_env
from quire.env.look_env import LookEnv
from quire.errors import ConnectionLost, QuireError, StoreClosed, StoreLocked
from quire.interface.store import Store
from quire.libraries.late_imports import importing
from quire.limits import JOIN_POLL_SECONDS, JOIN_SECONDS
from quire.opening import another_users, checked_path
from quire.remote.client.joining import forbidden, join

T = TypeVar("T")


def look(path: str, action: Callable[[Store], T], *, env: Env | None = None) -> T:
    """Return the action's result on a store. It may be called twice, and must only look.

    Raises StoreNotFound, StoreCorrupt, StoreFailed, InvalidArgument as `open` does, and StoreLocked
    for a store whose owner does not answer.
    """
    path = checked_path(path)
    machine = check_env(env)
    layout = Layout(path)
    lock = layout.lock
    deadline = machine.monotonic() + JOIN_SECONDS
    while True:
        joined = join(machine, path)
        if joined is not None:
            try:
                with joined:
                    return action(joined)
            except (ConnectionLost, StoreClosed):
                continue  # the owner has ended
        try:
            seen = _seen(machine, lock)
        except PermissionError as error:
            # The engine: who asks an owner does without it.
            with importing():
                from quire.engine.checkpoints.store_files import not_opened

            raise not_opened(layout, error) from error
        if seen is not None:
            try:
                result = _look_at_files(machine, path, action)
            except (QuireError, OSError):
                if _seen(machine, lock) == seen:
                    raise
            else:
                if _seen(machine, lock) == seen:
                    return result
        elif (private := forbidden(machine, path)) is not None:
            raise StoreLocked(another_users(path, private))
        elif machine.monotonic() > deadline:
            raise StoreLocked(
                f"{path} is open in {_holder(machine, lock)}, which does not answer: it may be "
                "stopped (kill -CONT), or have opened the store with share=False; `quire dump` "
                "reads the files beside it"
            )
        machine.sleep(JOIN_POLL_SECONDS)


def _seen(env: Env, lock: str) -> int | None:
    """Return a number that changes when somebody opens the store; None while it is open."""
    try:
        if env.is_locked(lock):
            return None
    except NotADirectoryError:  # a file, which opening tells
        return 0
    return env.modified_us(lock) if env.exists(lock) else 0


def _holder(env: Env, lock: str) -> str:
    """Return the holder of the store, as that process wrote it into the lock's file."""
    try:
        file = env.open_file(lock, read_only=True)
    except (QuireError, OSError):
        return "a process"
    try:
        process_id = file.read(0, file.size()).partition(b"\n")[0].decode(errors="replace")
    finally:
        file.close()
    return f"process {process_id}" if process_id.isdecimal() else "a process"


def _look_at_files(env: Env, path: str, action: Callable[[Store], T]) -> T:
    with importing():
        from quire.engine import EmbeddedStore

    with naming_salvage(path):
        store = EmbeddedStore.open(path, env=LookEnv(env), create=False, background=False)
    try:
        return action(store)
    finally:
        store.abandon("the look at the store has ended")

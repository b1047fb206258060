"""Shipping a store's records for as long as its owner lives: the program of the shipper's process.

`python -m quire.archive.shipping PATH`, started by the store's owner, which watches it (see
`quire.remote.ownership.shipper_process`). It joins the store, and never owns one.

- SG1: it ends when its standard input does, or has a byte, and ships what is there before; or when
  the owner is gone, or the store has no archive any more.
- SG2: a second thread makes bases, and cleans up after them: entries go on meanwhile. A base that
  cannot be made is tried again later.
"""

from __future__ import annotations

import sys
from contextlib import closing, suppress
from itertools import chain
from typing import NamedTuple

from quire.archive.objects import Objects, open_objects
from quire.calls.wake_up import Thread, WakeUp
from quire.env import Env, OsEnv, check_env
from quire.errors import ArchiveFailed, ConnectionLost, InvalidArgument, QuireError, StoreClosed
from quire.interface.store import Store
from quire.loggers import logger
from quire.remote import join
from quire.reports.info import ArchiveInfo, ShippingReport, ShippingState

from . import format
from .base_due import ArchiveWeight, reason_for_base
from .base_keeping import ArchiveCleaning
from .base_making import backup
from .limits import (
    BASE_PAUSE_SECONDS,
    ENTRY_SECONDS,
    LAST_STEPS_SECONDS,
    MAX_SHIP_PAUSE_SECONDS,
)
from .manifest import manifests
from .object_reading import reading
from .shipper import Shipper, newest_entry

_log = logger("quire.archive")


class ShippedEnd(NamedTuple):
    """The latest record in an archive: its number and commit time; 0: none is there."""

    number: int
    time_us: int


class ShippingProcess:
    """The work of one shipper's process. `run` is for one thread, `end` for any."""

    def __init__(self, store: Store, env: Env) -> None:
        self._store = store
        self._env = env
        self._wake = WakeUp()
        self._is_ending = False

    def end(self) -> None:
        """Have `run` ship what is there, and return (SG1)."""
        self._is_ending = True
        self._wake.set()

    def run(self) -> None:
        """Ship until the end (SG1)."""
        with suppress(ConnectionLost, StoreClosed):
            while True:
                info = self._store.admin.archive()
                if info is None or not info.url:
                    return
                try:
                    objects = open_objects(info.url, self._env)
                except (QuireError, OSError) as error:
                    self._report(error)
                    if self._is_ending:
                        return
                    self._wake.wait(MAX_SHIP_PAUSE_SECONDS)
                else:
                    with closing(objects):
                        self._ship(objects, info)
                    if self._is_ending:
                        return

    def _report(self, error: Exception) -> None:
        """Tell the owner why nothing can be shipped."""
        state = self._store.integration.ship(None)
        self._store.integration.ship(
            ShippingReport(state.lsn, state.number, state.place, error=str(error), url=state.url)
        )

    def _ship(self, objects: Objects, info: ArchiveInfo) -> None:
        """Ship into one archive."""
        with reading(objects) as read:
            shipper = Shipper(self._store, objects, self._env, read)
            with closing(shipper):
                bases = _BaseKeeping(self._store, objects, info.url, self._env, self._wake)
                while not self._is_ending:
                    pause = shipper.step()
                    if shipper.is_over:
                        return
                    bases.look(shipper)
                    self._wake.wait(pause)
                ship_rest(shipper, self._env, LAST_STEPS_SECONDS)


def ship_rest(shipper: Shipper, env: Env, seconds: float) -> bool:
    """Ship what the store has now, for so long at most; return True if all of it was shipped."""
    until = env.monotonic() + seconds
    target: int | None = None
    while env.monotonic() < until:
        shipper.step()
        state = shipper.state
        if shipper.is_over or shipper.error or state is None:
            return False
        if target is None:
            target = state.end_number
        if state.number >= target:
            return True
    return False


def shipped_end(store: Store, url: str, *, env: Env | None = None) -> ShippedEnd:
    """Return the end of what a store has shipped to a place, as the archive itself has it.

    `store`: an open one, owned or joined, that has an archive there or is to get it. Raises
    ArchiveRefused for an archive in which the store cannot go on, ArchiveCorrupt, ArchiveFailed.
    """
    with closing(open_objects(url, check_env(env))) as objects, reading(objects) as read:
        newest = newest_entry(store, objects, read)
    if newest is None:
        return ShippedEnd(0, 0)
    return ShippedEnd(newest.head.last_number, newest.head.last_us)


def ship_now(store: Store, seconds: float, *, env: Env | None = None) -> int:
    """Ship what the store has, in this thread; the number of the latest record in the archive.

    `store`: an open one, owned or joined, that has an archive. A base is made if one is due, and
    what is not kept is removed then. Raises ArchiveFailed if not all was shipped after so many
    seconds, ArchiveRefused, and InvalidArgument for a store without an archive.
    """
    machine = check_env(env)
    info = store.admin.archive()
    if info is None:
        raise InvalidArgument(f"{store.path} has no archive: set one (quire archive set)")
    with (
        closing(open_objects(info.url, machine)) as objects,
        reading(objects) as read,
        closing(Shipper(store, objects, machine, read)) as shipper,
    ):
        if not ship_rest(shipper, machine, seconds):
            text = shipper.error or f"not all was shipped in {seconds:g} s"
            raise ArchiveFailed(f"{text}; {store.path} goes on, try again")
        weight = newest_base(objects)
        shipper.base_number = weight.base_number
        shipper.step()  # the owner need not know of that base
        if is_base_due(weight, shipper.state, 0, machine):
            shipper.base_number = backup(store, info.url, env=machine).backup.number
            ship_rest(shipper, machine, seconds)
            if info.keep_seconds:
                cleaning = ArchiveCleaning(objects, read, machine, info.keep_seconds, store)
                cleaning.run(lambda: machine.sleep(shipper.step()))
                shipper.boundary_place = cleaning.boundary_place
        return 0 if shipper.state is None else shipper.state.number


def newest_base(objects: Objects) -> ArchiveWeight:
    """Return an archive's newest base, and what was shipped since. Raises ArchiveError."""
    whole = [each.info for each in manifests(objects) if each.manifest is not None]
    if not whole:
        return ArchiveWeight()
    newest = max(whole, key=lambda each: (each.number, each.time_us))
    shipped = chain(*map(objects.list, (format.LOG, format.MERGED, format.BLOBS)))
    since = sum(each.bytes for each in shipped if each.modified_us > newest.time_us)
    return ArchiveWeight(newest.number, newest.time_us, newest.bytes, since)


def is_base_due(
    weight: ArchiveWeight, state: ShippingState | None, shipped_bytes: int, env: Env
) -> bool:
    """Return True if a base is due. `shipped_bytes`: what was shipped besides the weight's."""
    if state is None:
        return False
    now = ArchiveWeight(
        weight.base_number, weight.base_us, weight.base_bytes, weight.entry_bytes + shipped_bytes,
        state.number, state.number if state.gap else 0,
    )  # fmt: skip
    return bool(reason_for_base(now, env.now_us()))


class _BaseKeeping:
    """Makes the bases of an archive when they are due, and cleans up after them (SG2)."""

    def __init__(self, store: Store, objects: Objects, url: str, env: Env, wake: WakeUp) -> None:
        """`wake`: is set when one was made, or was found not to be due."""
        self._wake = wake
        self._store = store
        self._objects = objects
        self._url = url
        self._env = env
        self._thread: Thread | None = None
        self._weight: ArchiveWeight | None = None  # of the newest base, once that is known
        self._shipped_bytes = 0  # that the shipper had shipped when it was made
        self._due_at = 0.0

    def look(self, shipper: Shipper) -> None:
        """Begin a base if one is due and none is being made."""
        now = self._env.monotonic()
        state = shipper.state
        if shipper.error or state is None or now < self._due_at:
            return
        if self._thread is not None:
            if self._thread.is_alive():
                return
            self._thread = None
        weight = self._weight
        if weight is not None:
            shipped = max(0, shipper.shipped_bytes - self._shipped_bytes)
            if not is_base_due(weight, state, shipped, self._env):
                return
        self._due_at = now + BASE_PAUSE_SECONDS
        self._thread = Thread(target=self._make, args=(shipper, weight), name="quire-base")
        self._thread.start()

    def _make(self, shipper: Shipper, weight: ArchiveWeight | None) -> None:
        """Make a base; or find the newest one first."""
        try:
            if weight is None:
                self._weight = newest_base(self._objects)
                shipper.base_number = self._weight.base_number
                self._shipped_bytes = shipper.shipped_bytes
                # The owner is told first: it knows whether that base ends a gap.
                reported_at = self._env.monotonic() + ENTRY_SECONDS
                self._due_at = reported_at if self._weight.base_us else 0.0
                return
            shipped = shipper.shipped_bytes
            made = backup(self._store, self._url, env=self._env).backup
            self._weight = ArchiveWeight(made.number, made.time_us, made.bytes)
            shipper.base_number = made.number
            self._shipped_bytes = shipped
            info = self._store.admin.archive()
            if info is not None and info.url == self._url and info.keep_seconds:
                self._clean_up(shipper, info.keep_seconds)
        except (ConnectionLost, StoreClosed):
            return
        except (QuireError, OSError) as error:
            _log.warning("a base of %s, or the clean-up after it: %s", self._store.path, error)
        finally:
            self._wake.set()

    def _clean_up(self, shipper: Shipper, age: float) -> None:
        """Remove what is not kept, while the shipper goes on: the store says so first."""
        with reading(self._objects) as read:
            cleaning = ArchiveCleaning(self._objects, read, self._env, age, self._store)
            cleaning.run(lambda: self._env.sleep(ENTRY_SECONDS))
            shipper.boundary_place = max(shipper.boundary_place, cleaning.boundary_place)


def main(path: str) -> None:
    """Ship the records of the store at the path until standard input ends or has a byte (SG1)."""
    env = OsEnv()
    store = join(env, path)
    if store is None:
        return
    with closing(store):
        process = ShippingProcess(store, env)
        Thread(target=_await_end, args=(process,), name="quire-end").start()
        process.run()


def _await_end(process: ShippingProcess) -> None:
    with suppress(OSError, ValueError):
        sys.stdin.buffer.read(1)
    process.end()


if __name__ == "__main__":
    main(sys.argv[1])

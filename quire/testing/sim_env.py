"""A simulated machine: a disk that crashes, tears, fails and fills up on a seed, and a clock.

- `SimEnv` keeps every promise of `quire.env` (E1 to E8), and no promise beyond them: what is not
  durable by E1, E2 and E4 is kept, lost or torn at a `crash`, on the seed. That includes what a
  failed write or sync left (E3): the running machine shows it, also after a `kill`, and no later
  sync makes it durable.
SE2. The same workload on the same seed does the same, as long as one thread does it.
SE3. After a crash the environment and all its handles raise `SimulatedCrash`, and go on raising.
SE4. Nothing passes but what is asked for: time goes on by a microsecond per look, and by `sleep`
    and `advance`.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

from quire.calls.documented import documented_by
from quire.calls.signal_safety import allow_reentry
from quire.env import Env
from quire.env.interpreter import RLock
from quire.env.os_file import aligned_buffer, not_readable
from quire.env.os_lock import guarded_words
from quire.errors import StoreLocked, raise_if_refused
from quire.testing.sim_calls import (
    Call,
    CallLog,
    Fault,
    SimulatedCrash,
    io_error,
    matches,
    raise_fault,
)
from quire.testing.sim_disk import NameChange, SimDirectory, SimDisk, Survival, walk
from quire.testing.sim_file import SimFile
from quire.testing.sim_inode import PAGE_BYTES, SECTOR_BYTES, Outcome, SimInode, pages_of

# (the machine, path, offset, length) -> who uses any of it, in words; empty if nobody does.
InUse = Callable[["SimEnv", str, int, int], str]


class Tally:
    """A count of the power failures that were looked at, over all machines of this process."""

    def __init__(self) -> None:
        self.power_failures = 0
        self.uncertain = 0  # of them, those with something uncertain

    def count(self, uncertain: list[str]) -> None:
        """Count one more, after which it was uncertain whether these were kept."""
        self.power_failures += 1
        self.uncertain += bool(uncertain)


TALLY = Tally()
"""The tally of all machines of this process."""

LockKey = tuple[SimInode, str]  # the file, and in which way it is locked
START_US = 1_700_000_000_000_000
STEP_US = 1


class SimLock:
    """A held lock of a `SimEnv` (see `quire.env.FileLock`): of a file, in some way."""

    def __init__(self, env: SimEnv, path: str, key: LockKey, owner: str) -> None:
        self._env = env
        self._path = path
        self._key = key
        self._held = True
        env.locks[key] = owner

    @property
    def held(self) -> bool:
        return self._held and not self._env.crashed

    @property
    def in_place(self) -> bool:
        return self._env.disk.find(self._path) is self._key[0]

    def release(self) -> None:
        with self._env.guard:
            self._env.check_alive()
            if self._held:
                self._held = False
                del self._env.locks[self._key]


class SimNamesLock:
    """Held names of a `SimEnv`: a lock of each."""

    def __init__(self, locks: list[SimLock]) -> None:
        self._locks = locks

    @property
    def held(self) -> bool:
        return all(lock.held for lock in self._locks)

    @property
    def in_place(self) -> bool:
        return all(lock.in_place for lock in self._locks)

    def release(self) -> None:
        for lock in self._locks:
            lock.release()


@documented_by(Env)
class SimEnv:
    """A machine in memory (see `quire.env.Env`).

    `crash_at` is the number of the call (see `CallLog`) in whose middle the power fails, and may
    be set at any time. `before_call` is called before each numbered call, without any lock, so
    that a test can hold one thread there and let another go on. `within_call` is called in the
    midst of each, where `crash_at` would crash it: for an `image`, and no other call. `direct` says
    whether the disk grants direct files. `survivals` tells what the crash that this environment
    comes from did.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        capacity_bytes: int | None = None,
        crash_at: int | None = None,
        direct: bool = True,
    ) -> None:
        self.seed = seed
        self.capacity_bytes = capacity_bytes
        self.crash_at = crash_at
        self.direct = direct
        self.file_system_kind = "simulated"  # as mounts name it, such as "nfs4"
        self.random = Random(seed)
        self.calls = CallLog()
        self.crashed = False
        self.before_call: Callable[[Call], None] | None = None
        self.within_call: Callable[[Call], None] | None = None
        self.survivals: list[Survival] = []
        self.guard = RLock()
        self.clock_us = START_US
        self.wall_offset_us = 0
        self.locks: dict[LockKey, str] = {}
        self.disk = SimDisk()
        self._faults: list[Fault] = []
        self._forbidden: list[str] = []
        self._in_use: list[tuple[str, InUse]] = []

    # What a test does to the machine.

    def crash(self, *, seed: int = 0, outcome: Literal["kept", "lost"] | None = None) -> SimEnv:
        """The machine after a power failure: a new one; this one is dead from now on.

        What was not durable is kept, lost or torn, drawn from both seeds, or all `kept` or all
        `lost` if asked for. May be called again with other seeds, for other fates of one run.
        """
        with self.guard:
            self.crashed = True
            TALLY.count(self.uncertain)
            return self.if_it_crashed(seed=seed, outcome=outcome)

    def if_it_crashed(
        self, *, seed: int = 0, outcome: Literal["kept", "lost"] | None = None
    ) -> SimEnv:
        """Return what `crash` would return now, while this machine goes on."""
        with self.guard:
            random = Random(f"{self.seed}/{self.calls.last_number}/{seed}")
            mood: Outcome | None = outcome
            if mood is None:
                moods: tuple[Outcome | None, ...] = ("kept", "lost", None, None, None, None)
                mood = random.choice(moods)
            disk, survivals = self.disk.after_power_failure(random, mood)
            env = self._restarted(disk, random.getrandbits(63))
            env.survivals = survivals
            return env

    def image(self, earlier: SimEnv | None = None) -> SimEnv:
        """This machine as it is now, crashed; this one goes on. Its `crash` tells what is left.

        It shares the bytes of the files that have not changed with an `earlier` image.
        """
        with self.guard:
            image = SimEnv(self.seed, capacity_bytes=self.capacity_bytes, direct=self.direct)
            image.crashed = True
            image.disk = self.disk.image(None if earlier is None else earlier.disk)
            image.calls.last_number = self.calls.last_number
            self._pass_on(image)
            return image

    def kill(self) -> SimEnv:
        """The machine after its process was killed: all that was written is still there.

        What was not durable is still not durable, and what had failed is still uncertain; locks and
        handles are gone. Each call gives a machine of its own.
        """
        with self.guard:
            self.crashed = True
            return self._restarted(self.disk.after_kill(), self.seed + 1)

    def fail(
        self,
        kind: str,
        pattern: str = "*",
        nth: int = 1,
        error: BaseException | None = None,
        forever: bool = False,
        lands: bool | None = None,
    ) -> Fault:
        """Let the nth call of this kind from now on, on a path or file name that matches, fail.

        Kinds are those of `sim_calls`, or "*". The error is EIO unless given; one that refuses a
        call (E9) is raised as ResourceExhausted, as by the real machine, but by a sync. What a
        failed sync should have made durable stays readable, and so does a failed write: all of it,
        nothing, or some sectors from its beginning, as the seed or `lands` says. Whether it is
        there after a
        power failure is open, whatever is synced later, until it is written again (E3).
        """
        fault = Fault(kind, pattern, nth, error or io_error(), forever, lands=lands)
        self._faults.append(fault)
        return fault

    def fail_at(
        self, number: int, error: BaseException | None = None, forever: bool = False
    ) -> Fault:
        """Let the call with this number fail; with `forever` all numbered calls from there on."""
        fault = Fault("*", "*", 1, error or io_error(), forever, at_number=number)
        self._faults.append(fault)
        return fault

    def forbid_overwrite(self, pattern: str, in_use: InUse | None = None) -> None:
        """Raise AssertionError, from now on, for a write over a synced page that is not zero.

        Writing the very same bytes again is allowed. Renaming the file, cutting it, or punching
        the page declares the space to be free again.
        With `in_use`, AssertionError for a write, punch or cut of what that function says is in
        use, and nothing else: for files whose pages are used again without any of these.
        """
        if in_use is None:
            self._forbidden.append(pattern)
        else:
            self._in_use.append((pattern, in_use))

    def corrupt(self, path: str, offset: int, mask: int | bytes = 0x01) -> None:
        """Flip the mask's bits in the file, as seen and as durable."""
        flips = mask if isinstance(mask, bytes) else bytes([mask])
        with self.guard:
            inode = self.disk.file(path)
            inode.cache.flip(offset, flips)
            inode.durable.flip(offset, flips)

    def contents(self, path: str) -> bytes:
        """Return the content of a file, as reads see it. Not a call."""
        with self.guard:
            return bytes(self.disk.file(path).cache)

    def durable_contents(self, path: str) -> bytes:
        """Return the content that a file is sure to have after a power failure, if its name is
        durable.
        """
        with self.guard:
            return bytes(self.disk.file(path).durable)

    def files(self) -> list[str]:
        """The paths of all files."""
        with self.guard:
            return [path for path, _ in self.disk.files()]

    @property
    def uncertain(self) -> list[str]:
        """The paths of what a failed write or sync left: shown now, and perhaps never durable."""
        with self.guard:
            return self.disk.uncertain_paths()

    def used_bytes(self) -> int:
        """The space in use, by pages that are written or allocated."""
        with self.guard:
            return self.disk.used_pages() * PAGE_BYTES

    def advance(self, seconds: float) -> None:
        """Let time pass for both clocks."""
        with self.guard:
            self.clock_us += round(seconds * 1e6)

    def jump_wall_clock(self, seconds: float) -> None:
        """Set the wall clock forward or back; `monotonic` does not notice."""
        with self.guard:
            self.wall_offset_us += round(seconds * 1e6)

    # The environment itself.

    def open_file(
        self,
        path: str,
        *,
        create: bool = False,
        exclusive: bool = False,
        read_only: bool = False,
        direct: bool = False,
    ) -> SimFile:
        with self.guard:
            self.check_alive()
            node = self.disk.find(path)
        if exclusive and node is not None:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        if node is None and (create or exclusive):
            self._change_names(
                "create", path, lambda: self.disk.add(path, SimInode(path, self.clock_us))
            )
        else:
            try:
                self.raise_fault(self.begin("open", path))
            except OSError as error:
                if read_only and not isinstance(error, FileNotFoundError):
                    raise not_readable(error, path) from error
                raise
        with self.guard:
            inode = self.disk.file(path)
            return SimFile(self, inode, path, read_only, direct and self.direct and not read_only)

    def exists(self, path: str) -> bool:
        with self.guard:
            self.check_alive()
            return self.disk.find(path) is not None

    def list_directory(self, path: str) -> Sequence[str]:
        self.raise_fault(self.begin("list_directory", path))
        with self.guard:
            return sorted(self.disk.directory(path).entries)

    def make_directory(self, path: str) -> None:
        with self.guard:
            self.check_alive()
            node = self.disk.find(path)
        if isinstance(node, SimDirectory):
            return
        if node is not None:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        self._change_names("make_directory", path, lambda: self.disk.add(path, SimDirectory()))

    def remove(self, path: str) -> None:
        self._change_names("remove", path, lambda: self.disk.removal(path))

    def rename(self, old: str, new: str) -> None:
        self._change_names("rename", new, lambda: self.disk.renaming(old, new))
        with self.guard:
            node = self.disk.get(new)
            if isinstance(node, SimInode):
                node.path = new
                node.protected.clear()
            else:
                for path, inode in walk(node, new):
                    inode.path = path

    def link(self, old: str, new: str) -> None:
        self._change_names("link", new, lambda: self.disk.linking(old, new))

    def sync_directory(self, path: str) -> None:
        with self.guard:
            self.check_alive()
            covered = self.disk.covered_by(self.disk.directory(path))
        call = self.begin("sync_directory", path)
        with self.guard:
            fault = self.strike(call)
            if fault is not None:
                self.disk.fail_sync(covered)
                raise fault.make_error()
            self.crash_point(call)
            self.disk.make_durable(covered)

    def file_system(self, path: str) -> str:
        return self.file_system_kind

    def free_bytes(self, path: str) -> int | None:
        with self.guard:
            self.check_alive()
            if self.capacity_bytes is None:
                return None
            return max(self.capacity_bytes - self.disk.used_pages() * PAGE_BYTES, 0)

    def real_path(self, path: str) -> str:
        return posixpath.normpath("/" + path.lstrip("/"))

    def modified_us(self, path: str) -> int:
        with self.guard:
            self.check_alive()
            return self.disk.file(path).modified_us

    def lock(self, path: str, owner: str) -> SimLock:
        with self.guard:
            self.check_alive()
            key = self._lock_key(path)
            if key in self.locks:
                raise StoreLocked(
                    f"{path} is locked by this simulated machine, which has opened the store by "
                    f"{self.locks[key]}; close the store there, or share the open one"
                )
            return SimLock(self, path, key, owner)

    def hold_file(self, path: str) -> SimLock:
        with self.guard:
            self.check_alive()
            key = self.disk.file(path), "who holds the file"
            if key in self.locks:
                raise StoreLocked(guarded_words(path))
            return SimLock(self, path, key, "who holds the file")

    def is_locked(self, path: str) -> bool:
        with self.guard:
            self.check_alive()
            node = self.disk.find(path)
            return isinstance(node, SimInode) and (node, "") in self.locks

    def lock_names(self, path: str, names: Sequence[str]) -> SimNamesLock | str:
        with self.guard:
            self.check_alive()
            keys = [self._lock_key(path, f"name {name}") for name in names]
            for name, key in zip(names, keys, strict=True):
                if key in self.locks:
                    return name
            return SimNamesLock([SimLock(self, path, key, "a name") for key in set(keys)])

    def now_us(self) -> int:
        return self._tick() + self.wall_offset_us

    def monotonic(self) -> float:
        return self._tick() / 1e6

    def sleep(self, seconds: float) -> None:
        self.check_alive()
        self.advance(seconds)

    def random_u64(self) -> int:
        with self.guard:
            self.check_alive()
            return self.random.getrandbits(64)

    def aligned_buffer(self, size: int) -> memoryview:
        self.raise_fault(self.begin("map", "memory", 0, size))
        return aligned_buffer(size)

    # What handles ask of it.

    def check_alive(self) -> None:
        """Raise `SimulatedCrash` once the machine has crashed."""
        if self.crashed:
            raise SimulatedCrash("the simulated machine has crashed; go on with what crash() gave")

    def begin(self, kind: str, path: str, offset: int = 0, length: int = 0) -> Call:
        """Count a call. Called without the guard, so that `before_call` can wait."""
        with self.guard:
            self.check_alive()
            call = self.calls.record(kind, path, offset, length)
        if self.before_call is not None and call.number:
            allow_reentry(self.before_call, call)  # what others do then, done by this thread
        self.check_alive()
        return call

    def strike(self, call: Call) -> Fault | None:
        """Return the planned fault of this call, if there is one."""
        self.check_alive()
        struck = [fault for fault in self._faults if fault.strikes(call)]
        return struck[0] if struck else None

    def raise_fault(self, call: Call) -> None:
        """Raise the error of a fault that was planned for this call."""
        with self.guard:
            fault = self.strike(call)
        if fault is not None:
            raise_fault(call, fault)

    def landed(self, fault: Fault, length: int) -> int:
        """Return how many bytes of a failed write reads see."""
        lands = self.random.choice((True, False, None)) if fault.lands is None else fault.lands
        if lands is None:
            return self.random.randrange(length + 1) // SECTOR_BYTES * SECTOR_BYTES
        return length if lands else 0

    def crash_point(self, call: Call) -> None:
        """Let the power fail in the middle of a call: its change is made, and not durable."""
        if self.within_call is not None:
            self.within_call(call)
        if call.number == self.crash_at:
            self.crashed = True
            raise SimulatedCrash(f"the simulated power failed in call {call.number}: {call}")

    def check_room(self, inode: SimInode, offset: int, length: int) -> None:
        """Raise OSError (ENOSPC) where the disk has no pages for a write of this range."""
        if self.capacity_bytes is None:
            return
        more = sum(1 for page in pages_of(offset, length) if page not in inode.pages)
        if more and (self.disk.used_pages() + more) * PAGE_BYTES > self.capacity_bytes:
            full = OSError(errno.ENOSPC, "the simulated disk is full")
            raise_if_refused(full, inode.path, f"add {length} bytes at {offset}")

    def forbids_overwrite(self, path: str) -> bool:
        """Return True if synced pages of this file may not be written in place."""
        return any(matches(path, pattern) for pattern in self._forbidden)

    def check_in_use(self, kind: str, inode: SimInode, offset: int, length: int) -> None:
        """Raise AssertionError where somebody uses what a call would take away."""
        for pattern, in_use in self._in_use:
            holder = matches(inode.path, pattern) and in_use(self, inode.path, offset, length)
            if holder:
                raise AssertionError(
                    f"{kind} of {length} bytes at {offset} of {inode.path}, in use by {holder}"
                )

    def check_overwrite(self, inode: SimInode, offset: int, data: bytes) -> None:
        """Raise AssertionError where a write would change synced pages that may not be."""
        if not inode.protected or not self.forbids_overwrite(inode.path):
            return
        hit = inode.protected.intersection(pages_of(offset, len(data)))
        if hit and inode.cache.read(offset, len(data)) != data:
            raise AssertionError(
                f"write of {len(data)} bytes at {offset} of {inode.path} overwrites synced pages"
                f" {sorted(hit)} in place"
            )

    def _change_names(self, kind: str, path: str, make: Callable[[], NameChange]) -> None:
        call = self.begin(kind, path)
        with self.guard:
            change = make()
            self.raise_fault(call)
            self.disk.change(change)
            self.crash_point(call)

    def _lock_key(self, path: str, way: str = "") -> LockKey:
        """Return the key of a lock at the path, whose file is made if there is none."""
        if self.disk.find(path) is None:
            self.disk.change(self.disk.add(path, SimInode(path, self.clock_us)))
        return self.disk.file(path), way

    def _restarted(self, disk: SimDisk, seed: int) -> SimEnv:
        env = SimEnv(seed, capacity_bytes=self.capacity_bytes, direct=self.direct)
        env.disk = disk
        self._pass_on(env)
        env.clock_us += 1_000_000
        return env

    def _pass_on(self, env: SimEnv) -> None:
        """Another machine has the same time, and forbids the same."""
        env.clock_us = self.clock_us
        env.wall_offset_us = self.wall_offset_us
        env.file_system_kind = self.file_system_kind
        env._forbidden = list(self._forbidden)
        env._in_use = list(self._in_use)

    def _tick(self) -> int:
        with self.guard:
            self.check_alive()
            self.clock_us += STEP_US
            return self.clock_us

"""Crash workloads: which kinds of fault a run tries on which of them, and how each is tried.

A workload does operations on a store, and has an oracle that says for every point what may be there
and what must be. A cell is a workload and a kind of fault:

- `power`: the power fails in the midst of a call;
- `error`: a write or sync fails, the workload ends with that, and its process is killed;
- `resumed`: after such an error a new process goes on, and the power fails in a call of that;
- `recovery`: the power fails in a call of a recovery, or one of its own writes or syncs fails;
- `full`: the disk has no room now and then, and the power fails in a call meanwhile.

Each time the workload's `check` sees the machines that can come up again: with all that was not
durable lost, with all of it kept, and with mixtures in which writes are torn. A machine that was
seen with the same oracle before is not looked at again.

A short run tries a third of the cells (`pick`), and in each of them some points: of every operation
and every kind of call on every kind of file one, as far as they go, drawn from the seed. A long run
tries all points of all cells.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Hashable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from quire.testing import Call, SimEnv
from quire.testing.sim_crash import (
    Crashes,
    CrashNote,
    failing_calls,
    kind_of_file,
    one_of_each,
    run_with_error,
)
from tests.kit.draws import turn

FAULTS = ("power", "error", "resumed", "recovery", "full")
"""All kinds of fault."""
SHARE = 3  # a short run tries one of so many cells
POINTS = 9  # of a cell in a short run
FULL_RUNS = 8  # on a full disk, without a power failure
MIXTURES = 2  # of what was kept, lost and torn, at each point

Oracle = TypeVar("Oracle")


class Cell(NamedTuple):
    """A workload's name and a kind of fault."""

    workload: str
    fault: str


class CrashWorkload(Protocol[Oracle]):
    """A workload for the engine below."""

    @property
    def operation(self) -> str:
        """What it does at present, in a word or two."""

    def new_machine(self) -> SimEnv:
        """Return a machine for a new run: the same one each time."""

    def new_oracle(self) -> Oracle:
        """Return what is known before a run."""

    def run(self, env: SimEnv, oracle: Oracle) -> None:
        """Do the operations; the oracle, which can be copied, notes what was acknowledged."""

    def resume(self, env: SimEnv, oracle: Oracle) -> None:
        """Go on in a new process, on a machine of which one was killed."""

    def recover(self, env: SimEnv, oracle: Oracle) -> None:
        """Open and close the store."""

    def check(self, env: SimEnv, oracle: Oracle, seed: int) -> None:
        """Raise AssertionError if the machine that came up has not what it should."""

    def check_failed(self, env: SimEnv, oracle: Oracle) -> bool:
        """Return True if a store is open on the machine and has failed.

        AssertionError if it changes anything then, or does not show what it holds.
        """

    def on_full_disk(self, seed: int) -> CrashWorkload[Oracle]:
        """Return the same workload with another seed, on a disk that is full now and then."""

    def key(self, oracle: Oracle) -> Hashable:
        """Return what two oracles share that allow the same."""


def pick(seed: int, workloads: Sequence[str]) -> list[Cell]:
    """Return the cells that a short run with this seed tries.

    They are a third of all: at least one of each workload, and at least one of each kind of fault.
    Over three consecutive turns (`tests.kit.draws`) they are all cells.
    """
    return [
        Cell(row, column)
        for m, row in enumerate(sorted(workloads))
        for n, column in enumerate(FAULTS)
        if (m + n + turn(seed)) % SHARE == 0
    ]


def all_cells(workloads: Iterable[str]) -> list[Cell]:
    """Return every cell."""
    return [Cell(workload, fault) for workload in workloads for fault in FAULTS]


class CellRun(Generic[Oracle]):
    """The points of a cell; `points`: how many at most, or None for all of them."""

    def __init__(
        self, workload: CrashWorkload[Oracle], seed: int, points: int | None = POINTS
    ) -> None:
        self.workload = workload
        self.points = points
        self.cases = 0
        self.machines = 0  # of the cases: those that were not seen before
        self.tried: set[tuple[str, str, str]] = set()  # operation, call, kind of file
        self.seed = seed
        self.random = Random(f"points {seed}")
        self._seen: set[Hashable] = set()

    def try_fault(self, fault: str) -> None:
        """Try the points of this kind of fault."""
        {
            "power": self.power,
            "error": self.error,
            "resumed": self.resumed,
            "recovery": self.recovery,
            "full": self.full,
        }[fault]()

    def power(self) -> None:
        """The power fails at calls of the workload."""
        self._power(self.workload.run, self.workload.new_oracle, self.workload.new_machine)

    def full(self) -> None:
        """The power fails at calls of the workload on a disk that is full now and then."""
        for number in range(FULL_RUNS):
            self.workload = self.workload.on_full_disk(self.seed + number)
            env, oracle = self.workload.new_machine(), self.workload.new_oracle()
            self.workload.run(env, oracle)
            self._look(env.kill(), oracle, f"seed {self.seed + number}, on a full disk")
        self.power()

    def error(self) -> None:
        """Writes and syncs fail, at calls of the workload."""
        self._error(self.workload.run, self.workload.new_oracle, self.workload.new_machine)

    def resumed(self) -> None:
        """The power fails at calls of what goes on after an error of each kind."""
        calls, _ = self._count(
            self.workload.run, self.workload.new_oracle(), self.workload.new_machine()
        )
        errors = one_of_each(calls, self.seed)
        points = self.points
        if points is not None:
            self.random.shuffle(errors)
            # Groups of the journal, and checkpoints, are what all the work after it is built on.
            errors.sort(key=lambda call: kind_of_file(call.path) not in ("log", "checkpoint"))
            del errors[5:]
            self.points = max(points // len(errors), 1)
        for call in errors:
            env, oracle = run_with_error(
                self.workload.run, self.workload.new_machine(), self.workload.new_oracle(), call
            )
            with CrashNote(f"seed {self.seed}, error in {call}, and gone on after it"):
                self._power(self.workload.resume, partial(copy.deepcopy, oracle), env.kill)

    def recovery(self) -> None:
        """The power fails, and writes and syncs do, while a store is recovered."""
        calls, _ = self._count(
            self.workload.run, self.workload.new_oracle(), self.workload.new_machine()
        )
        points = self.points
        count = 3 if points is not None else 12
        if points is not None:
            self.points = points // (2 * count)
        for call in self.random.sample(calls[len(calls) // 3 :], count):
            [(_, env, oracle)] = Crashes(
                self.workload.run, self.workload.new_machine, self.workload.new_oracle, [call]
            )
            fate = self.random.getrandbits(16)
            with CrashNote(f"seed {self.seed}, crash(seed={fate}) in {call}, and its recovery"):
                again = partial(env.crash, seed=fate)
                self._power(self.workload.recover, partial(copy.deepcopy, oracle), again)
                self._error(self.workload.recover, partial(copy.deepcopy, oracle), again)

    # The two experiments

    def _power(self, run: Any, new_oracle: Any, new_machine: Any) -> None:
        env, oracle = new_machine(), new_oracle()
        calls, operations = self._count(run, oracle, env)
        self._fates(env, oracle, "after the last call")
        chosen = self._choose(calls, operations)
        for call, image, known in Crashes(run, new_machine, new_oracle, chosen):
            where = f"seed {self.seed}, {operations.get(call.number)}, crash in {call}"
            self._fates(image, known, where)

    def _error(self, run: Any, new_oracle: Any, new_machine: Any) -> None:
        calls, operations = self._count(run, new_oracle(), new_machine())
        for call in self._choose(failing_calls(calls), operations):
            env, oracle = run_with_error(run, new_machine(), new_oracle(), call)
            where = f"seed {self.seed}, {operations.get(call.number)}, error in {call}"
            with CrashNote(where):
                is_open = self.workload.check_failed(env, oracle)
                later = [c for c in env.calls.log if c.number > call.number]
                again = [c for c in later if "sync" in c.kind and c.path == call.path]
                # A checkpoint that has begun in the meantime may sync a directory once more.
                if is_open and "beside" not in operations.get(call.number, ""):
                    assert not again, "a sync that has failed is made again"
            self._fates(env, oracle, where)
            self._look(env.kill(), oracle, f"{where}; the process was killed")

    # Their parts

    def _count(self, run: Any, oracle: Oracle, env: SimEnv) -> tuple[list[Call], dict[int, str]]:
        """Run undisturbed; return the calls, and of each what the workload did then."""
        operations: dict[int, str] = {}

        def note(call: Call) -> None:
            operations[call.number] = self.workload.operation

        env.within_call = note
        begin = env.calls.last_number
        run(env, oracle)
        env.within_call = None
        return [c for c in env.calls.log if c.number > begin], operations

    def _choose(self, calls: Sequence[Call], operations: dict[int, str]) -> list[Call]:
        """Return the calls to try: of each operation, kind of call and of file one, in turn."""
        if self.points is None or len(calls) <= self.points:
            return list(calls)
        kinds: dict[tuple[str, str, str], list[Call]] = {}
        for call in calls:
            kind = operations.get(call.number, ""), call.kind, kind_of_file(call.path)
            kinds.setdefault(kind, []).append(call)
        turns = [self.random.sample(each, len(each)) for each in kinds.values()]
        self.random.shuffle(turns)
        chosen: list[Call] = []
        while len(chosen) < self.points:
            chosen += [turn.pop() for turn in turns if turn][: self.points - len(chosen)]
        self.tried |= {
            (operations.get(call.number, ""), call.kind, kind_of_file(call.path)) for call in chosen
        }
        return sorted(chosen)

    def _fates(self, env: SimEnv, oracle: Oracle, where: str) -> None:
        """Look at what may be left of a machine whose power fails now."""
        fates: list[tuple[str, dict[str, Any]]] = [
            ("all lost", {"outcome": "lost"}),
            ("all kept", {"outcome": "kept"}),
        ]
        for _ in range(MIXTURES):
            number = self.random.getrandbits(16)
            fates.append((f"crash(seed={number})", {"seed": number}))
        for fate, how in fates:
            after = env.crash(**how)
            self._look(after, oracle, f"{where}; {fate}; not durable: {list(after.survivals)}")

    def _look(self, env: SimEnv, oracle: Oracle, where: str) -> None:
        self.cases += 1
        key = fingerprint(env), self.workload.key(oracle)
        if key in self._seen:
            return
        self._seen.add(key)
        self.machines += 1
        seed = self.random.getrandbits(16)
        with CrashNote(f"{where}; looked at with seed {seed}"):
            self.workload.check(env, copy.deepcopy(oracle), seed)


def fingerprint(env: SimEnv) -> bytes:
    """Return a digest of all that the disk shows, and of what of it is uncertain."""
    digest = hashlib.blake2b(repr((env.uncertain, env.capacity_bytes)).encode())
    for path, inode in env.disk.files():
        digest.update(f"{path} {len(inode.cache)}\n".encode())
        digest.update(inode.cache.stored)
    return digest.digest()

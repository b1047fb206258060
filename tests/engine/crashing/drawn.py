"""Workloads of operations that the seed draws, judged by the model of `tests.engine.workload`.

They differ in what they do often: `mixed` is everything, in one variant of a store or another;
`prepared` prepares and decides much; `unsynced` commits much that is not durable when it returns;
`archived` has an archive, whose shipper must find all that is not shipped in its place (US1).
"""

from __future__ import annotations

from collections.abc import Hashable
from random import Random
from typing import Any

import pytest
from msgspec import Struct

from quire.engine import EmbeddedStore as Store
from quire.engine.options import FIXED
from quire.errors import QueueFull, StoreClosed, StoreFailed
from quire.testing import SimEnv
from tests.engine.workload import ALL, Oracle, Workload, check_store, gone_on, open_store
from tests.kit.crashes import CellRun

FULL: dict[str, Any] = {"full": 0.15, "steps": 60}
COMPRESSED: dict[str, Any] = {
    "large_limit_bytes": 6000,
    "large_limit_messages": 6,
    "large_flush_bytes": 4096,
}


class Variant(Struct, frozen=True):
    """Options of a workload and its store, and limits that it needs."""

    options: dict[str, Any]
    limits: dict[str, float] = {}


PLAIN = Variant({})
SEVERAL_FILES = Variant({"data_files": 3})
CHECKPOINTS_IN_COMMITS = Variant({"steps": 100, "checkpoint_bytes": 100_000})
VARIANTS: dict[str, dict[str, Variant]] = {
    "mixed": {
        "plain": PLAIN,
        "several data files": SEVERAL_FILES,
        "large pages": Variant({"page_size": 65536, "segment_bytes": 1 << 20, "data_files": 2}),
        "checkpoints in commits": CHECKPOINTS_IN_COMMITS,
        "a data file that shrinks": Variant(
            {"grow_bytes": 8192, "steps": 60}, {"FILE_SLACK_BYTES": 4096}
        ),
        "zstd": Variant({"ltds_compression": "zstd", **COMPRESSED}),
        "lz4": Variant({"ltds_compression": "lz4", **COMPRESSED}),
        "request ids": Variant({"repeats": 0.6}),
        "request ids, checkpoints in commits": Variant(
            {"repeats": 0.6, "steps": 100, "checkpoint_bytes": 100_000}
        ),
    },
    "prepared": {
        "plain": Variant({"prepares": 40, "steps": 30}),
        "request ids": Variant({"prepares": 40, "steps": 30, "repeats": 0.6}),
    },
    "unsynced": {
        "plain": Variant({"lazy": 0.7}),
        "nearly nothing is durable": Variant({"lazy": 1.0}),
        "several data files": Variant({"lazy": 0.7, "data_files": 3}),
        "checkpoints in commits": Variant({"lazy": 0.7, **CHECKPOINTS_IN_COMMITS.options}),
        "request ids": Variant({"lazy": 0.5, "repeats": 0.6}),
    },
    "archived": {
        "plain": Variant({"archived": True}),
        "several data files": Variant({"archived": True, "data_files": 3}),
        "checkpoints in commits": Variant({"archived": True, **CHECKPOINTS_IN_COMMITS.options}),
        "a data file that shrinks": Variant(
            {"archived": True, "grow_bytes": 8192, "steps": 60}, {"FILE_SLACK_BYTES": 4096}
        ),
        "prepared": Variant({"archived": True, "prepares": 40, "steps": 30}),
        "unsynced": Variant({"archived": True, "lazy": 0.7}),
    },
}


class Drawn:
    """A crash workload of drawn operations, on one variant of a store.

    `direct`: the disk grants direct files.
    """

    def __init__(self, seed: int, variant: Variant, *, direct: bool, **more: Any) -> None:
        self.seed = seed
        self.limits = variant.limits
        self.direct = direct
        self.options = {**variant.options, **more}
        self._variant = variant
        self._fixed = {name: self.options[name] for name in FIXED if name in self.options}
        self._workload = self._new()

    def _new(self) -> Workload:
        return Workload(self.seed, **self.options)

    @property
    def operation(self) -> str:
        return self._workload.operation

    def new_machine(self) -> SimEnv:
        return SimEnv(self.seed, direct=self.direct)

    def new_oracle(self) -> Oracle:
        return Oracle()

    def run(self, env: SimEnv, oracle: Oracle) -> None:
        self._workload = self._new()
        self._workload(env, oracle)

    def resume(self, env: SimEnv, oracle: Oracle) -> None:
        chances = {name: self.options[name] for name in ("prepares", "lazy", "repeats", "archived")
                   if name in self.options}  # fmt: skip
        gone_on(self.seed, **chances, **self._fixed)(env, oracle)

    def recover(self, env: SimEnv, oracle: Oracle) -> None:
        """Three times; what the first opening shows, the others show, and so it stays."""
        if not oracle.created:
            env.make_directory("/disk")
            env.sync_directory("/")
        for _ in range(3):
            store = open_store(env, **self._fixed)
            oracle.model, oracle.pending = oracle.match(store).copy(), None
            oracle.created, oracle.earlier = True, []
            store.close()

    def check(self, env: SimEnv, oracle: Oracle, seed: int) -> None:
        check_store(env, oracle, seed=seed, **self._fixed)

    def check_failed(self, env: SimEnv, oracle: Oracle) -> bool:
        runner = self._workload.runner
        if runner is None or runner.env is not env or not refuses(runner.store):
            return False
        if not oracle.model.queues:
            return False
        check_refusal(runner.store, oracle)
        return True

    def on_full_disk(self, seed: int) -> Drawn:
        return Drawn(seed, self._variant, direct=self.direct, **FULL)

    def key(self, oracle: Oracle) -> Hashable:
        views = [model.view() for model in oracle.allowed()]
        return repr((oracle.created, views, oracle.ids, oracle.adopted))


def drawn(name: str, seed: int, variant: str) -> Drawn:
    """Return a workload; the seed says on which kind of disk, too."""
    is_direct = Random(f"{name} {variant} {seed}").random() < 0.5
    return Drawn(seed, VARIANTS[name][variant], direct=is_direct)


def variant_of(name: str, fault: str, seed: int) -> str:
    """Return the variant that a short run tries with a kind of fault."""
    return Random(f"{name} {fault} {seed}").choice(sorted(VARIANTS[name]))


def try_several(
    seeds: range, name: str = "mixed", fault: str = "power", *, points: int = 10
) -> None:
    """Try a few points on several seeds: an engine that is broken on purpose must not pass."""
    for seed in seeds:
        CellRun(drawn(name, seed, "plain"), seed, points).try_fault(fault)


def refuses(store: Store) -> bool:
    """Return True if the store is open, and has failed."""
    try:
        store.queues()
    except StoreClosed:
        return False
    return store.failed


def check_refusal(store: Store, oracle: Oracle) -> None:
    """Raise AssertionError unless the store refuses every change and shows what it holds."""
    for change in (lambda: store.create_queue("refused", kind="topic"), store.admin.checkpoint):
        with pytest.raises(StoreFailed, match="open it again"):
            change()
    with pytest.raises(StoreFailed), store.transaction() as transaction:
        transaction.enter("refused", 1)
    with pytest.raises((StoreFailed, QueueFull)):
        store.put(min(oracle.model.queues), b"refused")
    shown = {info.name: info.end_position for info in store.queues()}
    assert shown == {name: len(queue.payloads) for name, queue in oracle.model.queues.items()}
    for name in shown:
        queue = oracle.model.queues[name]
        kept = [p for i, p in enumerate(queue.payloads) if i not in queue.released]
        assert store.browse(name, max_messages=ALL).payloads() == kept

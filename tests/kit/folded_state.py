"""The check that a store's live state is the fold of its files, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import count
from typing import Any, Final

import pytest

from quire.engine import EmbeddedStore
from quire.engine.ownership import OwnedEnv
from quire.engine.records.checkpoint_file import read_checkpoint
from quire.engine.state.state_hash import hash_of, values_of
from quire.env import Env
from quire.file_dump.history import newest_history
from quire.file_dump.source import DumpSource
from quire.testing import SimEnv

SAMPLED: Final = 4  # of the closings of a test one in so many is looked at, but for the first


def check_folded(store: EmbeddedStore) -> bool:
    """Compare the state's hash with that of the newest checkpoint and the journal after it.

    False: nothing was compared, as the store is closed, has failed or was moved, or another one has
    its place. No planned fault strikes.
    Raises AssertionError with the values that differ.
    """
    opened, sequencer = store._opened, store._context.sequencer
    if store._closed or sequencer.failure is not None or opened.journal.failed:
        return False
    durable = store._context.state.durable
    with store._checkpointer.paused(), _undisturbed(opened.env):
        live, end_lsn = sequencer.exclusive(lambda: (values_of(durable), opened.journal.end_lsn))
        if not opened.env.exists(opened.layout.checkpoints):  # it was moved
            return False
        with closing(DumpSource(opened.env, opened.layout)) as source:
            newest = read_checkpoint(
                opened.env, opened.layout.checkpoints, source.checkpoints()[-1]
            )
            if newest.store_id != opened.store_id:
                return False
            history = newest_history(source, end_lsn)
            for _ in history.read():
                pass
    folded = values_of(history.state)
    if hash_of(live) != hash_of(folded):
        found = "; ".join(_differences("state", live, folded))
        raise AssertionError(f"the live state (first) is no fold of the records (second): {found}")
    return True


@pytest.fixture(autouse=True)
def stores_are_folded(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whenever a store of this process is closed, its live state is the fold of its files.

    That of each test's first one is compared, and of the others, as after each of many simulated
    crashes, one in four on the seed: all of them would take an eighth of the time.
    """
    close = EmbeddedStore.close
    closed = count()

    def check_and_close(store: EmbeddedStore) -> None:
        number = next(closed)
        if not number or (number + seed) % SAMPLED == 0:
            check_folded(store)
        close(store)

    monkeypatch.setattr(EmbeddedStore, "close", check_and_close)


@contextmanager
def _undisturbed(env: Env) -> Iterator[None]:
    """What is read meanwhile is no call that a test plans or counts."""
    env = env.machine if isinstance(env, OwnedEnv) else env
    if not isinstance(env, SimEnv):
        yield
        return
    kept = env._faults, env.before_call, env.within_call, env.calls._reads.copy()
    env._faults, env.before_call, env.within_call = [], None, None
    try:
        yield
    finally:
        env._faults, env.before_call, env.within_call, env.calls._reads = kept


def _differences(name: str, live: Any, folded: Any) -> Iterator[str]:
    """Each value that differs, with its place."""
    if isinstance(live, Mapping) and isinstance(folded, Mapping):
        for key in sorted({*live, *folded}, key=str):
            yield from _differences(f"{name}.{key}", live.get(key), folded.get(key))
    elif json.dumps(live, sort_keys=True) != json.dumps(folded, sort_keys=True):
        yield f"{name}: {live!r} and {folded!r}"

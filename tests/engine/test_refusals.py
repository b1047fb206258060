"""Errors that refuse a call and leave the store as it was, by call and errno (docs/full-disk.md).

Each of them comes at each call that the store makes for some work, on a simulated disk; what was
refused is not there, not after a power failure either, and the same work can be done afterwards.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import DiskFull, ResourceExhausted, StoreFailed
from quire.testing import SimEnv
from tests.engine.workload import PATH, new_machine
from tests.kit.folded_state import check_folded

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFUSING = (*NO_ROOM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
REFUSED_CALLS = ("open", "create", "write", "allocate", "rename", "list_directory", "map")
SPACE_CALLS = ("remove", "truncate")  # they give space back, and nothing else
SYNCS = ("sync", "sync_directory")
# Of the calls of a kind, one in so many, on the seed. All opens are tried: only two of them are of
# files that a call cannot do without.
EVERY = {"write": 13, "open": 1}
SMALL: dict[str, Any] = {"segment_bytes": 256 << 10, "inline_limit_bytes": 6000}


def error_of(number: int) -> OSError:
    """As the system raises it."""
    return OSError(number, os.strerror(number))


def open_small(env: SimEnv) -> Store:
    """With small segments, so that the work comes to further ones."""
    return Store.open(PATH, env=env, background=False, **SMALL)


def put_one(store: Store, payload: bytes, *, durable: bool = True) -> None:
    """In a commit of its own."""
    with store.transaction(durable=durable) as txn:
        txn.put("q", payload)


def payloads(store: Store) -> list[bytes]:
    """All that is there."""
    return store.browse("q").payloads()


def after_power_failures(env: SimEnv, seed: int) -> list[list[bytes]]:
    """What is there when the power fails now, in some fates of what is not durable."""
    found = []
    outcomes: tuple[Literal["kept", "lost"] | None, ...] = ("kept", "lost", None, None)
    for fate, outcome in enumerate(outcomes):
        with open_small(env.if_it_crashed(seed=seed + fate, outcome=outcome)) as store:
            found.append(payloads(store))
    return found


@pytest.mark.cases(6)
@pytest.mark.promise(1, 2, 11)
@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("lands", [True, False, None])
@pytest.mark.parametrize("number", REFUSING, ids=errno.errorcode.__getitem__)
def test_promise_1_2_11_a_refused_write_of_the_journal(
    number: int, lands: bool | None, direct: bool, seed: int
) -> None:
    """Whatever landed of the group: nothing is durable but what was acknowledged, and the next
    commit works, at once and after a power failure.
    """
    env = new_machine(seed, direct=direct)
    store = open_small(env)
    store.create_queue("q", kind="work")
    there: list[bytes] = []
    for size in (10, 3000, 5000):
        for durable in (True, False):
            payload = b"%d" % len(there) * size
            env.fail("write", "*.log", error=error_of(number), lands=lands)
            with pytest.raises(DiskFull if number in NO_ROOM else ResourceExhausted) as raised:
                put_one(store, payload, durable=durable)
            assert raised.value.errno == number
            assert payloads(store) == there
            assert after_power_failures(env, seed) == [there] * 4
            put_one(store, payload, durable=durable)
            there.append(payload)
            store.sync()
            assert after_power_failures(env, seed) == [there] * 4
    assert check_folded(store)
    assert store.admin.verify().findings == []
    env = env.kill()
    store.abandon("its process was killed")
    with open_small(env) as store:
        assert payloads(store) == there
        assert store.admin.verify().findings == []


def work(store: Store, refused: list[ResourceExhausted]) -> None:
    """Something that comes to each kind of call; what is refused is repeated once."""

    def take_step(step: Callable[[], object]) -> None:
        try:
            step()
        except ResourceExhausted as error:
            refused.append(error)
            step()

    def put_many(size: int, *, large: bool) -> None:
        with store.transaction(large=large) as txn:
            txn.put_many("q", [bytes(size)] * 20)

    def get_some() -> None:
        with store.transaction() as txn:
            txn.get_many("q", 3)
            txn.put("q", b"more")

    take_step(lambda: store.create_queue("q", kind="work"))
    for _ in range(2):
        take_step(lambda: store.put("q", bytes(100)))
        take_step(lambda: put_many(900, large=False))
        take_step(lambda: put_many(9000, large=True))
        take_step(lambda: store.put_many("q", [bytes(5000)] * 20))
        take_step(get_some)
        take_step(store.admin.checkpoint)
        take_step(store._maintenance.step)
    for _ in range(50):
        take_step(lambda: store.put("q", bytes(5000)))


@pytest.mark.cases(2)
@pytest.mark.promise(2, 11)
@pytest.mark.parametrize("kind", REFUSED_CALLS)
def test_promise_2_11_any_call_may_be_refused(kind: str, seed: int) -> None:
    """At each call of a kind, one errno after another: the store does not fail, what was refused
    can be repeated, and nothing of it is there twice or in part.
    """
    refusals = runs = 0
    every = EVERY.get(kind, 2)
    for nth in range(1 + seed % every, 1000, every):
        env = new_machine(seed)
        store = open_small(env)
        number = REFUSING[runs % len(REFUSING)]
        fault = env.fail(kind, f"{PATH}*" if kind != "map" else "*", nth, error_of(number))
        refused: list[ResourceExhausted] = []
        work(store, refused)
        store.close()
        fault.cancel()
        assert {error.errno for error in refused} <= {number}
        with open_small(env) as store:
            assert store.queue("q").messages == 2 * (1 + 20 + 20 + 20 - 3 + 1) + 50
            assert store.admin.verify().findings == []
        refusals += len(refused)
        if not fault.hits:
            break
        runs += 1
    assert runs > 1
    assert refusals or kind not in ("open", "write")


@pytest.mark.promise(2, 11)
@pytest.mark.parametrize("kind", SPACE_CALLS)
def test_promise_2_11_space_is_given_back_later(kind: str, seed: int) -> None:
    """Where giving space back is refused, no call is; the space is free after the next opening,
    but for a few pages. One errno after another, at each call of the kind.
    """
    kept = []
    for nth in range(1000):  # 0: none is refused
        env = new_machine(seed)
        store = open_small(env)
        number = REFUSING[nth % len(REFUSING)]
        fault = env.fail(kind, f"{PATH}*", nth or 10**9, error_of(number))
        refused: list[ResourceExhausted] = []
        work(store, refused)
        with store.transaction() as txn:
            while txn.get_many("q", 100):
                pass
        store.admin.checkpoint()
        store._maintenance.step()
        store.close()
        fault.cancel()
        assert refused == []
        with open_small(env) as store:
            assert store.admin.verify().findings == []
            store.admin.checkpoint()
            store._maintenance.step()
        kept.append(env.used_bytes())
        if nth and not fault.hits:
            break
    assert len(kept) > 3
    assert max(kept) < kept[0] + (64 << 10)


@pytest.mark.promise(11)
@pytest.mark.parametrize("kind", SYNCS)
@pytest.mark.parametrize("number", REFUSING, ids=errno.errorcode.__getitem__)
def test_promise_11_a_sync_is_never_refused(kind: str, number: int, seed: int) -> None:
    """With any errno it fails the store, as it is not known what is durable."""
    env = new_machine(seed, direct=False)
    store = open_small(env)
    env.fail(kind, error=error_of(number))
    with pytest.raises(StoreFailed):
        work(store, [])
    assert store.failed
    store.abandon("it has failed")


@pytest.mark.promise(11)
@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENXIO, errno.EACCES])
def test_promise_11_every_other_errno_fails_the_store(number: int, seed: int) -> None:
    """A write that failed otherwise is not to be trusted."""
    env = new_machine(seed)
    store = open_small(env)
    store.create_queue("q", kind="work")
    env.fail("write", "*.log", error=error_of(number))
    with pytest.raises(StoreFailed):
        store.put("q", b"m")
    assert store.failed
    store.abandon("it has failed")


def test_a_refusal_that_cannot_be_taken_back_fails_the_store(seed: int) -> None:
    """Where the group landed and cannot be overwritten, it may come back: nobody is told that it
    was refused. Where nothing landed, it was refused, however long the errors go on.
    """
    for lands in (True, False):
        env = new_machine(seed)
        store = open_small(env)
        store.create_queue("q", kind="work")
        fault = env.fail("write", "*.log", 1, error_of(errno.EFBIG), forever=True, lands=lands)
        with pytest.raises(StoreFailed if lands else DiskFull):
            store.put("q", b"m")
        fault.cancel()
        assert store.failed == lands
        if not lands:
            store.put("q", b"m")
            assert payloads(store) == [b"m"]
        store.abandon("seen")


@pytest.mark.cases(2)
@pytest.mark.promise(11)
@pytest.mark.parametrize(
    ("limit", "refusal"), [("nofile", "ResourceExhausted 24"), ("fsize", "DiskFull 27")]
)
def test_promise_11_a_limit_of_the_process_is_reached(
    limit: str, refusal: str, store_path: str
) -> None:
    """Descriptors (`ulimit -n`), and the size of files (`ulimit -f`, whose signal Python ignores):
    calls are refused, and done when the limit is gone; the store does not fail.
    """
    program = [sys.executable, "-m", "tests.engine.limited_process", store_path, limit]
    found = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    within, after, more, reopened, findings = json.loads(found.stdout)
    assert set(within) <= {"done", refusal}
    assert refusal in within
    assert after == ["done"] * 5
    assert (more, reopened, findings) == (5 + 5 + 20 - 1, 0, [])

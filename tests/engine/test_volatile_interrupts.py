"""An interrupt (a signal's exception) in a commit that concerns volatile queues."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import QuireError
from quire.testing import SimEnv

NAMES = ("p", "v", "w")
STRIDE = 7  # not each moment has its turn, but each a step of it


def _begin(store: Store, what: str) -> tuple[Callable[[], object], dict[str, list[bytes]]]:
    """The call that is to be interrupted, and what is there if it stands."""
    after = {name: [b"1", b"2"] for name in NAMES}
    if what == "put":
        after["v"].append(b"n")
        return lambda: store.put("v", b"n"), after
    transaction = store.transaction()
    for name in NAMES if what == "both" else ("v", "w"):
        transaction.put(name, b"n")
        after[name].append(b"n")
        if name != "w":
            transaction.get(name)
            del after[name][0]

    def commit() -> None:
        try:
            transaction.commit()
        finally:
            sys.setprofile(None)
            transaction.rollback()

    return commit, after


def _interrupted(action: Callable[[], object], moment: int) -> bool:
    count = 0

    def hear(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if "/engine/" in frame.f_code.co_filename and frame.f_code.co_filename != __file__:
            count += event in ("call", "c_return")
        if count == moment:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(hear)
    try:
        action()
    except (KeyboardInterrupt, QuireError):
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.cases(3)
@pytest.mark.promise(2)
@pytest.mark.parametrize("what", ["put", "volatile", "both"])
def test_promise_2_an_interrupt_of_a_commit_in_memory(what: str) -> None:
    """All of it or nothing is there, and nothing is left over; or the store has failed (VO3)."""
    moment, fine = 1, 0
    while True:
        store = Store.open("/store", env=SimEnv(), background=False, segment_bytes=1 << 20)
        for name in NAMES:
            store.create_queue(name, kind="work", type="persistent" if name == "p" else "volatile")
            store.put_many(name, [b"1", b"2"])
        action, after = _begin(store, what)
        is_over = not _interrupted(action, moment)
        if not store.failed:
            fine += 1
            found = {name: store.browse(name).payloads() for name in NAMES}
            assert found in ({name: [b"1", b"2"] for name in NAMES}, after), moment
            for name in NAMES:
                assert store.put(name, b"more") > 0
                assert store.get_many(name).payloads() == [*found[name], b"more"]
            counts = [(q.used_bytes, q.open_transactions, q.reserving) for q in store.queues()]
            assert (moment, counts) == (moment, [(0, 0, 0)] * 3)
            assert (moment, store.status()["volatile"]["blocks"]) == (moment, 0)
        with suppress(QuireError):
            store.close()
        if is_over:
            break
        moment += STRIDE
    assert moment > 5 * STRIDE
    assert fine > 3

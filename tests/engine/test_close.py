"""Closing a store: whatever the disk does, it is let go of, and can be opened again."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.errors import DiskFull, QuireError, StoreClosed, StoreCorrupt, StoreFailed
from quire.testing import SimEnv
from quire.testing.sim_calls import Fault
from tests.kit.messages import take

pytestmark = pytest.mark.crash

PATH = "/store"
OPTIONS: dict[str, Any] = {
    "segment_bytes": 1 << 18,
    "checkpoint_bytes": 1 << 30,  # so that closing makes one
    "large_flush_bytes": 4096,
    "write_buffer_bytes": 1 << 18,
    "grow_bytes": 1 << 14,
}
WORDS = [b"%03d " % number * 400 for number in range(60)]


def furnish(direct: bool, data_files: int) -> tuple[SimEnv, Store, list[Transaction]]:
    """A store with something of everything to be closed: committed, open, spilled, prepared."""
    env = SimEnv(direct=direct)
    store = Store.open(PATH, env=env, background=False, data_files=data_files, **OPTIONS)
    for name in ("work", "other", "large"):
        store.create_queue(name, kind="work")
    for word in WORDS:
        store.put("work", word)
    with store.transaction(large=True) as txn:
        txn.put_many("large", WORDS)
    large = store.transaction(large=True)
    large.put_many("large", WORDS)
    spilled = store.transaction()
    spilled.put_many("other", WORDS)
    newer = store.transaction()
    newer.put_many("other", WORDS * 4)
    assert newer.get("work") is not None
    prepared = store.transaction()
    prepared.put("other", b"prepared")
    prepared.prepare("xid")
    with store.transaction() as txn:
        assert len(txn.get_many("large", 1000)) == len(WORDS)
    return env, store, [large, spilled, newer, prepared]


def close(store: Store) -> None:
    """By itself."""
    store.close()


def leave(store: Store) -> None:
    """By the end of a with block."""
    with store:
        pass


def leave_with_an_error(store: Store) -> None:
    """By an error in a with block."""
    with contextlib.suppress(ZeroDivisionError), store:
        _ = 1 // 0


WAYS = [close, leave, leave_with_an_error]


def check_open_again(env: SimEnv) -> None:
    """The same process opens it, and finds all that was committed and prepared, nothing else."""
    assert not env.locks
    with Store.open(PATH, env=env, background=False) as store:
        assert store.admin.verify().ok
        assert take(store, "work") == WORDS
        assert take(store, "other") == []
        store.prepared.commit("xid")
        assert take(store, "other") == [b"prepared"]
        assert store.queue("large").messages == 0
        store.admin.checkpoint()
        assert store.admin.verify().ok


ERRORS: dict[str, BaseException | None] = {
    "io": None,
    "full": DiskFull("no room"),
    "interrupt": KeyboardInterrupt(),
}


def check_closing(
    way: Callable[[Store], None], env: SimEnv, store: Store, held: list[Transaction], fault: Fault
) -> bool:
    """A fault comes while it is closed: whether that was told."""
    told: QuireError | KeyboardInterrupt | None = None
    try:
        way(store)
    except (QuireError, KeyboardInterrupt) as raised:
        told = raised
    fault.cancel()
    if isinstance(told, StoreCorrupt):  # what cannot be read is no failed write
        assert fault.kind in ("open", "read")
        assert "cannot be" in str(told)
    else:
        assert not isinstance(told, QuireError) or "open it again" in str(told)
    store.close()
    with pytest.raises(StoreClosed):
        store.put("work", b"x")
    if not isinstance(fault.error, KeyboardInterrupt):
        assert {txn.state for txn in held} == {"rolled back", "prepared"}
    check_open_again(env)
    return told is not None


@pytest.mark.cases(8)
@pytest.mark.promise(11)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("direct", "data_files"), [(True, 1), (False, 2)])
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("kind", ERRORS)
def test_promise_11_an_error_at_every_call_of_close(
    way: Callable[[Store], None], direct: bool, data_files: int, forever: bool, kind: str
) -> None:
    """It raises nothing but Quire's errors, lets go of the lock, and twice is once."""
    env, store, held = furnish(direct, data_files)
    begin = env.calls.last_number
    way(store)
    end = env.calls.last_number
    check_open_again(env)
    assert end - begin > 10
    told = 0
    for number in range(begin + 1, end + 1):
        env, store, held = furnish(direct, data_files)
        assert env.calls.last_number == begin
        fault = env.fail_at(number, ERRORS[kind], forever=forever)
        told += check_closing(way, env, store, held, fault)
        assert fault.hits
    assert kind == "full" or told > 5


@pytest.mark.cases(6)
@pytest.mark.promise(11)
@pytest.mark.parametrize("kind", ["open", "read", "list_directory"])
@pytest.mark.parametrize("forever", [False, True])
def test_promise_11_an_error_at_every_read_of_close(kind: str, forever: bool) -> None:
    """The same for calls that change nothing."""
    hit = True
    nth = 0
    while hit:
        env, store, held = furnish(True, 1)
        store._context.reader._fresh.clear()  # so that a checkpoint reads the journal
        nth += 1
        fault = env.fail(kind, nth=nth, forever=forever)
        check_closing(close, env, store, held, fault)
        hit = fault.hits > 0
    assert nth > 1 or kind != "read"


@pytest.mark.promise(11)
def test_promise_11_a_lock_whose_file_cannot_be_emptied_is_let_go(
    store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real disk, a lock whose file cannot be emptied is let go of."""
    store = Store.open(store_path)

    def broken(fd: int, length: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("quire.env.os_lock.os.ftruncate", broken)
        with pytest.raises(StoreFailed, match="open it again"):
            store.close()
    Store.open(store_path).close()

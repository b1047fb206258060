"""The life of a transaction: who is open, what it holds; leaving the buffer, waiting, aborting."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import pytest
from msgspec.structs import replace

from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.errors import (
    DiskFull,
    InvalidArgument,
    QueueFull,
    StoreClosed,
    TransactionAborted,
    TransactionClosed,
    TransactionNotFound,
    TransactionTimeout,
)
from quire.limits import COMMIT_BYTES, MESSAGE_OVERHEAD_BYTES
from quire.testing import SimEnv
from tests.kit.messages import take
from tests.kit.waiting import SECONDS

CAPACITY = 10_000


def open_sim(**options: Any) -> Store:
    """A store on the simulated disk, without a thread."""
    return Store.open("/s", env=SimEnv(), background=False, **options)


def in_a_thread(action: Any) -> tuple[threading.Thread, list[BaseException]]:
    """Run it beside the test; what it raises is kept."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            errors.append(error)

    thread = threading.Thread(target=guarded, name="another")
    thread.start()
    return thread, errors


def waits(transaction: Transaction) -> None:
    """Until a commit of the transaction waits for space."""
    deadline = time.monotonic() + SECONDS
    while transaction._waits_for is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def nearly_full(store: Store) -> tuple[Transaction, Transaction]:
    """Two transactions in a queue that has no room for their commit records, one message read.

    It was made smaller meanwhile: what is put leaves room for them.
    """
    store.create_queue("q", kind="work", capacity=CAPACITY + 2 * COMMIT_BYTES)
    store.put("q", b"old" * 1000)
    first, second = store.transaction(), store.transaction()
    first.put("q", b"1")
    second.put("q", b"2")
    free = CAPACITY - store.queue("q").used_bytes
    second.put("q", b"x" * (free - MESSAGE_OVERHEAD_BYTES))
    store.alter_queue("q", capacity=CAPACITY)
    return first, second


# Waiting for space --------------------------------------------------------------------------------


@pytest.mark.promise(5)
def test_promise_5_a_commit_waits_for_space(store_path: str) -> None:
    """[0062] It goes on as soon as a reader makes room; nothing else is held up meanwhile."""
    with Store.open(store_path) as store:
        store.create_queue("other", kind="work")
        first, second = nearly_full(store)
        first.put("other", b"compound")
        thread, errors = in_a_thread(lambda: first.commit(timeout=SECONDS))
        waits(first)
        assert store.queue("q").reserving == 0
        assert store.queue("other").reserving == 0  # what was reserved elsewhere is released
        store.put("other", b"not held up")
        assert take(store, "q") == [b"old" * 1000]
        thread.join(SECONDS)
        assert not errors
        assert first.state == "committed"
        second.commit()
        assert [len(payload) for payload in take(store, "q")] == [1, 1, 6678]
        assert store.admin.verify().ok


@pytest.mark.promise(5)
def test_promise_5_a_prepare_waits_for_space(store_path: str) -> None:
    """As a commit does; its decision needs no space any more."""
    with Store.open(store_path) as store:
        first, second = nearly_full(store)
        thread, errors = in_a_thread(lambda: first.prepare("x", timeout=SECONDS))
        waits(first)
        assert take(store, "q") == [b"old" * 1000]
        thread.join(SECONDS)
        assert not errors
        assert first.state == "prepared"
        store.prepared.commit("x")
        second.rollback()
        assert take(store, "q") == [b"1"]


@pytest.mark.promise(5)
def test_promise_5_a_commit_gives_up_waiting(store_path: str) -> None:
    """After the time-out the transaction is open: it can be tried again, or rolled back."""
    with Store.open(store_path, commit_timeout=0.05) as store:
        first, second = nearly_full(store)
        with pytest.raises(QueueFull, match="commit records") as caught:
            first.commit()
        assert caught.value.queue == "q"
        assert first.state == "open"
        second.rollback()
        first.commit(timeout=0)
        assert take(store, "q") == [b"old" * 1000, b"1"]


def test_a_commit_that_waits_can_be_aborted(store_path: str) -> None:
    """The owner's commit raises TransactionAborted, and nothing of it is there."""
    with Store.open(store_path) as store:
        first, second = nearly_full(store)
        thread, errors = in_a_thread(lambda: first.commit(timeout=SECONDS))
        waits(first)
        store.admin.abort(first.id)
        thread.join(SECONDS)
        assert [type(error) for error in errors] == [TransactionAborted]
        second.rollback()
        assert take(store, "q") == [b"old" * 1000]


def test_an_abort_that_comes_as_a_commit_begins_to_wait(
    store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two looks first, the commit does not wait for its whole time."""
    with Store.open(store_path) as store:
        first, second = nearly_full(store)
        looked, go_on = threading.Event(), threading.Event()
        waiting: dict[str, Any] = {"for": None}

        def look(_: Transaction) -> Any:
            found = waiting["for"]
            if threading.current_thread().name == "another" and not looked.is_set():
                looked.set()
                go_on.wait(SECONDS)
            return found

        def wait(_: Transaction, queue: Any) -> None:
            waiting["for"] = queue

        monkeypatch.setattr(Transaction, "_waits_for", property(look, wait), raising=False)
        aborting, no_errors = in_a_thread(lambda: store.admin.abort(first.id))
        assert looked.wait(SECONDS)
        threading.Timer(0.1, go_on.set).start()
        committing, errors = in_a_thread(lambda: first.commit(timeout=100 * SECONDS))
        for thread in (committing, aborting):
            thread.join(SECONDS)
        assert [type(error) for error in errors] == [TransactionAborted]
        monkeypatch.undo()
        assert not no_errors
        second.rollback()


@pytest.mark.promise(7)
def test_closing_the_store_ends_a_commit_that_waits(store_path: str) -> None:
    """However long it may wait, and there is no limit at all here."""
    store = Store.open(store_path, commit_timeout=math.inf)
    first, _ = nearly_full(store)
    thread, errors = in_a_thread(first.commit)
    waits(first)
    closing, failures = in_a_thread(store.close)
    for each in (closing, thread):
        each.join(SECONDS)
        assert not each.is_alive()
    assert not failures
    assert [type(error) for error in errors] == [StoreClosed]
    with Store.open(store_path) as store:
        assert take(store, "q") == [b"old" * 1000]


@pytest.mark.promise(2)
def test_promise_2_a_with_block_whose_store_was_closed_raises(store_path: str) -> None:
    """Nobody may think that it was committed."""
    store = Store.open(store_path)
    store.create_queue("q", kind="work")

    def closed() -> None:
        with store.transaction() as txn:
            txn.put("q", b"x")
            store.close()

    with pytest.raises(StoreClosed):
        closed()


@pytest.mark.promise(13)
@pytest.mark.parametrize("timeout", [-1, "soon", float("nan"), True])
def test_promise_13_a_commit_refuses_bad_timeouts(timeout: Any) -> None:
    """A commit refuses bad timeouts and stays open."""
    with open_sim() as store:
        txn = store.transaction()
        with pytest.raises(InvalidArgument):
            txn.commit(timeout=timeout)
        assert txn.state == "open"


# Who is open --------------------------------------------------------------------------------------


def test_open_transactions_are_listed_with_what_they_hold() -> None:
    """Age, owner, bytes by place, queues, messages in flight; the oldest first."""
    with open_sim(write_buffer_messages=2, large_flush_bytes=1000) as store:
        store.create_queue("a", kind="work")
        store.create_queue("b", kind="work")
        store.put("a", b"taken")
        spilled = store.transaction(owner="the importer")
        spilled.put("a", b"x" * 500)
        spilled.put("b", b"y")
        large = store.transaction(large=True, timeout=60)
        large.put("a", b"z" * 5000)
        large.get("a")
        first, second = store.admin.transactions()
        assert (first.id, first.owner, first.state) == (spilled.id, "the importer", "open")
        assert (first.bytes, first.messages, first.queues) == (533, 2, ("a", "b"))
        assert (first.spilled_bytes, first.buffered_bytes, first.file_bytes) == (533, 0, 0)
        assert second.owner == "thread MainThread of the store's process"
        assert (second.file_bytes, second.in_flight, second.large) == (5016, 1, True)
        assert second.seconds_left is not None
        assert second.seconds_left <= 60
        assert second.age_seconds >= 0
        assert (first.sources, second.sources) == ((), ("a",))
        assert [store.admin.transaction(t.id).bytes for t in (spilled, large)] == [533, 5016]
        spilled.commit()
        large.commit()
        assert store.admin.transactions() == []
        assert store.admin.verify().ok


def test_one_open_transaction_is_shown() -> None:
    """As the list has it, with its age, its deadline, and where it has got messages from."""
    env = SimEnv()
    with Store.open("/s", env=env, background=False) as store:
        store.create_queue("in", kind="work")
        store.create_queue("news", kind="topic")
        store.subscribe("news", "a")
        store.put("in", b"1")
        store.put("news", b"2")
        other = store.transaction()
        txn = store.transaction(owner="the importer", timeout=60)
        txn.put("news", b"12345")
        for source in ("news/a", "in"):
            assert txn.get(source) is not None
        env.advance(20)
        info = store.admin.transaction(txn.id)
        assert (info.id, info.owner, info.state) == (txn.id, "the importer", "open")
        assert (info.queues, info.bytes, info.messages) == (("news",), 21, 1)
        assert (info.in_flight, info.sources) == (2, ("in", "news/a"))
        assert info.age_seconds == pytest.approx(20, abs=0.01)
        assert info.seconds_left == pytest.approx(40, abs=0.01)
        listed = [replace(t, age_seconds=0, seconds_left=0) for t in store.admin.transactions()]
        assert listed[1] == replace(info, age_seconds=0, seconds_left=0)
        assert store.admin.transaction(other.id).in_flight == 0
        txn.rollback()
        other.rollback()


@pytest.mark.promise(13)
@pytest.mark.parametrize("end", ["commit", "rollback", "prepare", "abort", "time"])
def test_promise_13_a_transaction_that_is_not_open_is_not_found(end: str) -> None:
    """However it ended; the error says which calls list those that are there."""
    env = SimEnv()
    with Store.open("/s", env=env, background=False) as store:
        store.create_queue("q", kind="work")
        txn = store.transaction(timeout=5)
        txn.put("q", b"x")
        if end == "prepare":
            txn.prepare("x1")
        elif end == "abort":
            store.admin.abort(txn.id)
        elif end == "time":
            env.advance(6)
            store.put("q", b"another")
        else:
            getattr(txn, end)()
        with pytest.raises(
            TransactionNotFound, match=r"transactions\(\) lists them, .*prepared\.list"
        ):
            store.admin.transaction(txn.id)
        for wrong in ("1", True, None):
            with pytest.raises(InvalidArgument, match="give the id of a TransactionInfo"):
                store.admin.transaction(wrong)  # type: ignore[arg-type]
        if end == "prepare":
            txn.rollback()


def test_a_transaction_can_be_aborted() -> None:
    """Its puts go, its gets come back, its owner is told; once."""
    with open_sim() as store:
        store.create_queue("q", kind="work")
        store.put("q", b"got")
        txn = store.transaction()
        txn.put("q", b"put")
        assert txn.get("q") is not None
        store.admin.abort(txn.id)
        assert txn.state == "rolled back"
        for call in (txn.commit, lambda: txn.put("q", b"more"), lambda: txn.get("q")):
            with pytest.raises(TransactionAborted, match="on demand"):
                call()
        with pytest.raises(TransactionNotFound):
            store.admin.abort(txn.id)
        with pytest.raises(InvalidArgument):
            store.admin.abort("1")  # type: ignore[arg-type]
        assert take(store, "q") == [b"got"]
        assert store.queue("q").used_bytes == 0


def test_a_with_block_that_was_aborted_raises() -> None:
    """Nobody may think that it was committed."""
    with open_sim() as store:
        store.create_queue("q", kind="work")

        def aborted() -> None:
            with store.transaction() as txn:
                txn.put("q", b"x")
                store.admin.abort(txn.id)

        with pytest.raises(TransactionAborted):
            aborted()
        assert store.queue("q").messages == 0


def test_a_get_that_waits_can_be_aborted(store_path: str) -> None:
    """It returns at once."""
    with Store.open(store_path) as store:
        store.create_queue("q", kind="work")
        txn = store.transaction()
        thread, errors = in_a_thread(lambda: txn.get("q", timeout=SECONDS))
        waits(txn)
        store.admin.abort(txn.id)
        thread.join(SECONDS)
        assert [type(error) for error in errors] == [TransactionAborted]


@pytest.mark.promise(7)
def test_promise_7_what_was_spilled_is_rolled_back_by_the_timeout() -> None:
    """Pages, space and the log's records go; a ROLLBACK record stands until a checkpoint."""
    env = SimEnv()
    with Store.open("/s", env=env, background=False, write_buffer_messages=1) as store:
        store.create_queue("q", kind="work")
        txn = store.transaction(timeout=5)
        for number in range(10):
            txn.put("q", b"%d" % number * 100)
        assert store.admin.transactions()[0].spilled_bytes == 9 * 116
        env.advance(6)
        store.put("q", b"another")
        with pytest.raises(TransactionTimeout):
            txn.commit()
        kinds = [record.kind for record in store.admin.queue_records("q")]
        assert kinds == ["OPEN", *["MESSAGES"] * 9, "MESSAGES", "ROLLBACK"]
        store.admin.checkpoint()
        assert store.admin.queue_records("q") == []
        assert take(store, "q") == [b"another"]
        assert store.admin.verify().ok
        assert store.queue("q").used_bytes == 0


# The write buffer ---------------------------------------------------------------------------------


@pytest.mark.cases(4)
@pytest.mark.promise(9)
def test_promise_9_rolled_back_records_do_not_pile_up() -> None:
    """Transactions that are spilled and rolled back leave a bounded number of records."""
    with open_sim(write_buffer_messages=1) as store:
        store.create_queue("q", kind="work")
        for _ in range(3000):
            txn = store.transaction()
            txn.put("q", b"1")
            txn.put("q", b"2")
            txn.rollback()
        log = store._context.state.queue("q").log
        assert len(log.entries) <= 2 * 1025
        assert not log.opened


@pytest.mark.parametrize("end", ["rollback", "read"])
def test_records_are_told_apart_though_their_pages_are_used_again(end: str) -> None:
    """What is at the same place now belongs to another transaction."""
    with open_sim(write_buffer_messages=2) as store:
        store.create_queue("q", kind="work")
        numbers = []
        for _ in range(2):
            txn = store.transaction()
            txn.put_many("q", [b"1", b"2"])
            txn.put("q", b"3")
            numbers.append(txn.id)
            if len(numbers) == 1 and end == "rollback":
                txn.rollback()
            else:
                txn.commit()
                if len(numbers) == 1:
                    take(store, "q")
        spilled = [
            r for r in store.admin.queue_records("q") if r.kind == "MESSAGES" and r.where == "data"
        ]
        assert len({record.address for record in spilled}) == 1
        first = None if end == "rollback" else 0
        second = 0 if end == "rollback" else 3
        assert [(r.transaction_id, r.position) for r in spilled] == [
            (numbers[0], first), (numbers[1], second),
        ]  # fmt: skip


@pytest.mark.cases(4)
@pytest.mark.promise(9)
def test_promise_9_rolled_back_records_are_counted_one_by_one() -> None:
    """Not by transaction: one of them may leave many. What others hold stays."""
    with open_sim(write_buffer_messages=1) as store:
        store.create_queue("q", kind="work")
        kept = store.transaction()
        for number in range(600):
            kept.put("q", b"%d" % number)
        log = store._context.state.queue("q").log
        for _ in range(20):
            txn = store.transaction()
            for _ in range(200):
                txn.put("q", b"x")
            txn.rollback()
            assert len(log.entries) <= 600 + 1024 + 2 * 201
        kept.commit()
        assert take(store, "q") == [b"%d" % number for number in range(600)]


def test_transactions_leave_the_buffer_after_a_time() -> None:
    """[0042] With `write_buffer_seconds`, full or not; and commit as ever."""
    env = SimEnv()
    with Store.open("/s", env=env, background=False, write_buffer_seconds=10) as store:
        store.create_queue("q", kind="work")
        txn = store.transaction()
        txn.put("q", b"waits")
        env.advance(11)
        store._maintenance.step()
        (shown,) = store.admin.transactions()
        assert (shown.buffered_bytes, shown.spilled_bytes) == (0, shown.bytes)
        txn.put("q", b"goes on")
        txn.commit()
        assert take(store, "q") == [b"waits", b"goes on"]


@pytest.mark.promise(13)
def test_promise_13_a_full_disk_leaves_the_buffer_as_it_is() -> None:
    """The put that needs room in the buffer fails; the transaction is whole, and commits later."""
    env = SimEnv()
    with Store.open(
        "/s", env=env, background=False, write_buffer_messages=2, grow_bytes=1 << 16
    ) as store:
        store.create_queue("q", kind="work")
        store.create_queue("other", kind="work")
        txn = store.transaction()
        txn.put("q", b"1" * 40_000)
        txn.put("q", b"2" * 40_000)
        env.capacity_bytes = env.used_bytes()
        for queue in ("q", "other"):
            with pytest.raises(DiskFull):
                txn.put(queue, b"3")
        with pytest.raises(DiskFull):
            txn.put_many("other", [b"3"])
        assert store.queue("other").open_transactions == 0
        assert store.admin.transactions()[0].messages == 2
        env.capacity_bytes = None
        txn.put("q", b"3")
        txn.commit()
        assert take(store, "q") == [b"1" * 40_000, b"2" * 40_000, b"3"]
        assert store.admin.verify().ok


@pytest.mark.promise(2)
@pytest.mark.parametrize("by_time", [False, True])
def test_promise_2_a_with_block_that_lost_messages_to_a_full_disk_raises(*, by_time: bool) -> None:
    """They were to leave the buffer for a file, for another transaction or after their time."""
    env = SimEnv()
    with Store.open(
        "/s",
        env=env,
        background=False,
        write_buffer_bytes=100_000,
        write_buffer_seconds=10,
        when_full="large",
    ) as store:
        store.create_queue("q", kind="topic")

        def lost() -> None:
            with store.transaction() as oldest:
                oldest.put("q", b"1" * 90_000)
                env.capacity_bytes = env.used_bytes()
                if by_time:
                    env.advance(11)
                    with pytest.raises(DiskFull):
                        store._maintenance.step()
                else:
                    other = store.transaction()
                    other.put("q", b"2" * 90_000)
                    other.put("q", b"2" * 90_000)
                    with pytest.raises(DiskFull):  # the other one cannot leave either
                        other.put("q", b"2" * 90_000)
                assert oldest.state == "rolled back"

        with pytest.raises(TransactionClosed, match="lost"):
            lost()
        assert (store.queue("q").messages, store.queue("q").used_bytes) == (0, 0)


@pytest.mark.promise(13)
@pytest.mark.parametrize("prepare", [False, True])
def test_promise_13_a_file_that_cannot_be_completed_rolls_back(*, prepare: bool) -> None:
    """The disk is full as the commit begins: part of the messages is lost, every call says so."""
    env = SimEnv()
    with Store.open("/s", env=env, background=False, large_flush_bytes=1 << 20) as store:
        store.create_queue("q", kind="work")
        txn = store.transaction(large=True)
        txn.put("q", b"1" * 1_100_000)
        txn.put("q", b"2" * 900_000)
        env.capacity_bytes = env.used_bytes()
        with pytest.raises(DiskFull):
            txn.prepare("xid") if prepare else txn.commit()
        assert txn.state == "rolled back"
        env.capacity_bytes = None
        with pytest.raises(TransactionClosed, match="lost"):
            txn.commit()
        assert (store.queue("q").used_bytes, store.queue("q").open_transactions) == (0, 0)
        assert not store.failed
        assert store.admin.verify().ok


def test_space_is_given_back_before_transactions_leave_the_buffer() -> None:
    """On a full disk a file that was read is removed, whose room is what the oldest one needs."""
    env = SimEnv()
    options: dict[str, Any] = {"large_flush_bytes": 1 << 20, "grow_bytes": 1 << 16}
    with Store.open("/s", env=env, background=False, write_buffer_seconds=10, **options) as store:
        store.create_queue("q", kind="work")
        with store.transaction(large=True) as txn:
            txn.put("q", b"x" * 3_000_000)
        oldest = store.transaction()
        oldest.put("q", b"y" * 200_000)
        store._maintenance._due = 1 << 60  # the next commit leaves that to the step below
        assert take(store, "q") == [b"x" * 3_000_000]
        assert store._context.places.removable
        env.advance(11)
        env.capacity_bytes = env.used_bytes()
        store._maintenance.step()
        assert store.admin.transactions()[0].spilled_bytes
        oldest.commit()
        assert take(store, "q") == [b"y" * 200_000]


@pytest.mark.promise(3)
def test_promise_3_spilled_messages_survive_a_crash_only_with_their_commit() -> None:
    """[0037] Open ones are gone after a crash, their pages free; committed ones are in order."""
    env = SimEnv()
    store = Store.open("/s", env=env, background=False, write_buffer_messages=1)
    store.create_queue("q", kind="work")
    forgotten, kept = store.transaction(), store.transaction()
    for number in range(5):
        forgotten.put("q", b"f%d" % number)
        kept.put("q", b"k%d" % number)
    store.admin.checkpoint()
    kept.commit()
    used = env.used_bytes()
    crashed = env.crash()
    with Store.open("/s", env=crashed, background=False) as again:
        assert take(again, "q") == [b"k0", b"k1", b"k2", b"k3", b"k4"]
        assert again.admin.verify().ok
        assert crashed.used_bytes() <= used

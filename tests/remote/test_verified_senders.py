"""Queues whose senders are verified: whoever reads there knows which user has put a message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quire
from quire.block import encode_one
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import InvalidArgument, NotAllowed, ScheduleExists
from quire.ltds import new_id
from quire.messages.message_fields import Fields
from tests.behaviour.forms import Clock
from tests.kit.users import as_user
from tests.kit.waiting import eventually

RIGHTS = "put,get queue:*; manage schedule:*"


@pytest.fixture
def verified(owner: Store) -> Store:
    """A store with queues of bytes and of rows whose senders are verified, and one of others."""
    for name, options in {
        "orders": {"dedup_count": 100, "order": "priority", "default_priority": 5},
        "rows": {"schema": "id bigint", "order": "priority", "default_priority": 5},
        "limited": {"max_ttl": 1000.0},
    }.items():
        owner.create_queue(name, kind="work", verified_sender=True, **options)  # type: ignore[arg-type]
    owner.create_queue("free", kind="work", order="priority", default_priority=5)
    owner.create_queue("dead", kind="work")
    owner.admin.create_alias("way", "orders")
    return owner


@contextmanager
def unchanged(store: Store) -> Iterator[None]:
    """Show that nothing was put."""
    before = [(info.name, info.messages) for info in store.queues()]
    yield
    assert [(info.name, info.messages) for info in store.queues()] == before


def put_by(store: Any, *puts: Callable[[Any], object]) -> None:
    """Put in one transaction."""
    with store.transaction() as txn:
        for put in puts:
            put(txn)


def batch(**columns: Any) -> pa.RecordBatch:
    """Return two messages, or rows, with these columns."""
    return pa.record_batch({name: list(values) for name, values in columns.items()})


def rows(**meta: Any) -> pa.RecordBatch:
    """Return two rows with a header."""
    found = pa.record_batch({"id": [1, 2]})
    header = pa.RecordBatch.from_pydict(meta).to_struct_array()
    return found.append_column("_meta", header)


def senders(*names: str | None) -> pa.Array:
    """Return a column."""
    return pa.array(names, pa.string())


# By their names: the queue, and a way to put there with fields that a put may say.
WAYS: dict[str, tuple[str, Callable[[Any, dict[str, Any]], object]]] = {
    "a put": ("orders", lambda s, f: s.put("orders", b"1", **f)),
    "a put by an alias": ("orders", lambda s, f: s.put("way", b"1", **f)),
    "a put with a header": ("orders", lambda s, f: s.put("orders", b"1", group=3, **f)),
    "a put that may expire": ("limited", lambda s, f: s.put("limited", b"1", **f)),
    "a put with a request id": ("orders", lambda s, f: s.put("orders", b"1", request_id="1", **f)),
    "a put in a transaction": (
        "orders",
        lambda s, f: put_by(s, lambda t: t.put("orders", b"1", **f)),
    ),
    "several puts in a transaction": (
        "orders",
        lambda s, f: put_by(s, *[lambda t: t.put("orders", b"1", **f)] * 3),
    ),
    "a put behind others": (
        "orders",
        lambda s, f: put_by(
            s, lambda t: t.put("orders", b"0", group=1), lambda t: t.put("orders", b"1", **f)
        ),
    ),
    "many": (
        "orders",
        lambda s, f: s.put_many(
            "orders",
            batch(payload=[b"1", b"2"], sender=senders(None, f.get("sender"))),
        ),
    ),
    "many with request ids": (
        "orders",
        lambda s, f: s.put_many(
            "orders",
            batch(payload=[b"1", b"2"], sender=senders(None, f.get("sender"))),
            request_ids=["1", "2"],
        ),
    ),
    "a block": (
        "orders",
        lambda s, f: put_by(
            s, lambda t: t.integration.put_block("orders", bytes(encode_one(b"1", Fields(**f))))
        ),
    ),
    "a row": ("rows", lambda s, f: s.put("rows", {"id": 1}, **f)),
    "rows": ("rows", lambda s, f: s.put_many("rows", rows(sender=senders(None, f.get("sender"))))),
    "a small stream": ("orders", lambda s, f: s.put_stream("orders", [b"1"], **f)),
    "a large stream": ("orders", lambda s, f: s.put_stream("orders", [b"1" * 400_000] * 3, **f)),
    "a message put once more": (
        "orders",
        lambda s, f: put_by(s, lambda t: t.put_moved("orders", b"1", {"priority": 0, **f})),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_whichever_way_a_user_puts_he_is_the_sender(
    verified: Store, tmp_path: Path, way: str
) -> None:
    """With and without saying so; another sender is refused, and nothing of the put is there."""
    queue, put = WAYS[way]
    with as_user(verified, tmp_path, RIGHTS) as anna:
        with unchanged(verified), pytest.raises(NotAllowed, match="puts as 'anna', and not as"):
            put(anna, {"sender": "bert"})
        put(anna, {"sender": "anna"})
        count = verified.queue(queue).messages
        assert count > 0
        if "request id" not in way:
            put(anna, {})
            assert verified.queue(queue).messages == 2 * count
    found = list(verified.browse(queue))
    assert {message.sender for message in found} == {"anna"}
    if way == "many":
        assert [message.payload for message in found] == [b"1", b"2"] * 2
    if way == "a put behind others":
        assert [(m.payload, m.group) for m in found] == [(b"0", 1), (b"1", 0)] * 2
    if way == "rows":
        assert [message.row.column("id").to_pylist()[0] for message in found] == [1, 2, 1, 2]  # type: ignore[attr-defined]
    usual = {"orders": 5, "rows": 5, "limited": 0}[queue]
    is_moved = way == "a message put once more"  # its priority is 0, for good
    assert {message.priority for message in found} == {0 if is_moved else usual}


def test_a_batch_keeps_what_it_says(verified: Store, tmp_path: Path) -> None:
    """All other headers, attributes and payloads, in their order."""
    columns = {
        "payload": [b"1", b"", b"3"],
        "priority": pa.array([1, 0, None], pa.int32()),
        "group": [7, 8, 9],
        "correlation_id": ["a", None, "c"],
        "content_type": [None, "text/plain", None],
        "attributes": pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
    }
    with as_user(verified, tmp_path, RIGHTS) as anna:
        anna.put_many("orders", pa.record_batch(columns))
    verified.put_many("free", pa.record_batch(columns))

    def shown(queue: str) -> list[tuple[object, ...]]:
        return sorted(
            (m.group, m.payload, m.correlation_id, m.content_type, dict(m.attributes))
            for m in verified.browse(queue)
        )

    assert shown("orders") == shown("free")
    assert {m.priority for m in verified.browse("orders")} == {0, 1, 5}


def test_the_store_s_own_user_puts_as_anybody(verified: Store, tmp_path: Path) -> None:
    """A program that opens the store by its path has all rights."""
    verified.put("orders", b"1", sender="bert")
    verified.put("orders", b"2")
    assert [m.sender for m in verified.browse("orders")] == ["bert", None]
    with (
        as_user(verified, tmp_path, "admin *:*") as root,
        pytest.raises(NotAllowed, match="puts as 'anna'"),
    ):
        root.put("orders", b"3", sender="bert")  # as any user


def forged(store: Store) -> None:
    """Put a message with any sender where that may be."""
    store.put("free", b"x", sender="bert")


def move(store: Any, source: str) -> None:
    """Move a message in a transaction."""
    with store.transaction() as txn:
        txn.move(source, "orders")


CARRIES: dict[str, Callable[[Any], object]] = {
    "a move in a transaction": lambda s: move(s, "free"),
    "a move of all": lambda s: s.admin.move("free", "orders"),
    "a redrive": lambda s: s.admin.redrive("free", to="orders"),
}


@pytest.mark.parametrize("way", CARRIES)
def test_messages_of_others_are_carried_by_who_manages_the_queue(
    verified: Store, tmp_path: Path, way: str
) -> None:
    """Others would carry what they have put themselves, with any sender (VS2)."""
    forged(verified)
    with (
        as_user(verified, tmp_path, RIGHTS) as anna,
        unchanged(verified),
        pytest.raises(NotAllowed),
    ):
        CARRIES[way](anna)
    with as_user(verified, tmp_path / "..", f"{RIGHTS}; manage queue:orders") as anna:
        CARRIES[way](anna)
    assert [m.sender for m in verified.browse("orders")] == ["bert"]


def test_a_redrive_to_wherever_letters_say(verified: Store, tmp_path: Path) -> None:
    """From a queue of any senders it needs `manage` on all queues; letters may say any of them."""
    with verified.transaction() as txn:
        txn.put("dead", b"x", sender="bert", attributes={"quire.queue": "orders"})
    with as_user(verified, tmp_path, RIGHTS) as anna:
        with unchanged(verified), pytest.raises(NotAllowed):
            anna.admin.redrive("dead")
        verified.alter_queue("dead", verified_sender=True)
        assert anna.admin.redrive("dead") == 1
    assert [m.sender for m in verified.browse("orders")] == ["bert"]


def test_from_a_verified_queue_the_store_carries_what_is_there(
    verified: Store, tmp_path: Path
) -> None:
    """A move and dead letters; each message keeps its sender."""
    verified.create_queue(
        "first", kind="work", verified_sender=True, max_deliveries=1, dead_letter="orders"
    )
    verified.put("first", b"1", sender="bert")
    with as_user(verified, tmp_path, RIGHTS) as anna:
        assert anna.admin.move("first", "orders") == 1
        anna.put("first", b"2")
        with anna.transaction() as txn:
            assert txn.get("first") is not None
            txn.rollback()
        eventually(lambda: verified.queue("orders").messages == 2)
        with pytest.raises(NotAllowed):  # by the user's own hands
            move(anna, "orders")
    assert [m.sender for m in verified.browse("orders")] == ["bert", "anna"]


def test_nobody_adopts_a_file_there(verified: Store, tmp_path: Path) -> None:
    """Whose messages nobody has looked at; not even one who may do everything."""

    def adopt(txn: Any) -> None:
        txn.integration.adopt("orders", new_id(OsEnv(), foreign=True))

    with (
        as_user(verified, tmp_path, "admin *:*") as root,
        pytest.raises(NotAllowed, match="in place of a file"),
    ):
        put_by(root, adopt)


def test_a_schedule_is_of_who_has_made_or_changed_it(
    verified: Store, tmp_path: Path, clock: Clock
) -> None:
    """Its messages have that user as their sender; another one is refused (VS3)."""
    verified.cron.create("theirs", "free", "@hourly", sender="bert")
    with as_user(verified, tmp_path, RIGHTS) as anna:
        with pytest.raises(NotAllowed, match="puts as 'anna'"):
            anna.cron.create("mine", "orders", "@hourly", sender="bert")
        with pytest.raises(NotAllowed, match="puts as 'anna'"):
            anna.cron.alter("theirs", queue="orders", sender="bert")
        anna.cron.create("mine", "way", "@hourly")
        anna.cron.create("mine", "orders", "@hourly", exist_ok=True)
        anna.cron.alter("theirs", queue="orders")
        clock.forward(3601)
        eventually(lambda: verified.queue("orders").messages == 2)
    assert {m.sender for m in verified.browse("orders")} == {"anna"}
    verified.cron.alter("mine", sender="bert")
    with (
        as_user(verified, tmp_path / "..", RIGHTS) as anna,
        pytest.raises(ScheduleExists, match="sender"),
    ):
        anna.cron.create("mine", "orders", "@hourly", exist_ok=True)


def test_what_would_bring_other_senders_is_refused_when_it_is_set(owner: Store) -> None:
    """Dead letters of a queue with any senders, and a schedule that puts as somebody."""
    owner.create_queue("orders", kind="work", verified_sender=True)
    with pytest.raises(InvalidArgument, match="give verified_sender=True, or another"):
        owner.create_queue("free", max_deliveries=1, dead_letter="orders")
    with pytest.raises(InvalidArgument, match="give verified_sender=True, or another"):
        owner.admin.create_queues(
            [
                {"name": "letters", "verified_sender": True},
                {"name": "free", "max_deliveries": 1, "dead_letter": "letters"},
            ]
        )
    owner.create_queue("first", max_deliveries=1, dead_letter="orders", verified_sender=True)
    with pytest.raises(InvalidArgument, match="have any sender"):
        owner.alter_queue("first", verified_sender=False)
    owner.alter_queue("orders", verified_sender=False)
    owner.alter_queue("first", verified_sender=False)
    owner.admin.create_alias("way", "orders")
    owner.alter_queue("first", dead_letter="way")
    with pytest.raises(InvalidArgument, match="dead letters of queue 'first'"):
        owner.alter_queue("orders", verified_sender=True)
    owner.alter_queue("first", verified_sender=True)
    owner.cron.create("nightly", "orders", "@daily", sender="bert")
    with pytest.raises(InvalidArgument, match="schedule 'nightly' puts as 'bert'"):
        owner.alter_queue("orders", verified_sender=True)
    owner.cron.drop("nightly")
    assert owner.alter_queue("orders", verified_sender=True).verified_sender


def test_it_is_there_after_a_restart(store_path: str) -> None:
    """It stands in the catalog, as other options do."""
    with quire.open(store_path) as store:
        store.create_queue("orders", verified_sender=True)
    with quire.open(store_path) as store:
        assert store.queue("orders").verified_sender

"""Properties of queues, made and altered: the same whether the store is owned or joined."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from quire.errors import InvalidArgument, QueueDisabled, QueueFull, QueueNotFound
from tests.behaviour.forms import AnyStore
from tests.kit.waiting import eventually


def test_a_queue_tells_its_properties(store: AnyStore) -> None:
    """As it was made, and as it was altered; what is not named stays."""
    made = store.create_queue(
        "q", kind="topic", text="orders, ümlaut", properties={"team": "a"}, order="priority"
    )
    assert (made.text, made.properties, made.order) == ("orders, ümlaut", {"team": "a"}, "priority")
    plain, other = store.admin.create_queues(
        ["plain", {"name": "r", "order": "priority", "default_priority": 7}]
    )
    assert (plain.text, plain.properties, plain.puts, plain.gets) == ("", {}, True, True)
    assert other.default_priority == 7
    altered = store.alter_queue("q", capacity=8192, max_messages=2, text="")
    assert altered == store.queue("q")
    assert (altered.capacity_bytes, altered.max_messages, altered.text) == (8192, 2, "")
    assert (altered.properties, altered.order) == ({"team": "a"}, "priority")
    [item] = [item for item in store.admin.catalog("queue") if item.body["name"] == "q"]
    assert item.version == 2
    assert "text" not in item.body


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "work"},
        {"capacity": 1},
        {"max_messages": 0},
        {"priority": 1},
        {"default_priority": 65536},
        {"default_priority": True},
        {"text": 5},
        {"text": "x" * 1025},
        {"text": "\ud800"},
        {"properties": ["a"]},
        {"properties": {"a": 1}},
        {"properties": {str(n): "" for n in range(101)}},
        {"puts": None},
        {"nonsense": 1},
    ],
    ids=str,
)
def test_wrong_properties_are_refused(store: AnyStore, wrong: Any) -> None:
    """Wrong properties are refused and nothing is changed."""
    before = store.create_queue("q", kind="topic")
    with pytest.raises(InvalidArgument):
        store.alter_queue("q", **wrong)
    if "kind" not in wrong:
        with pytest.raises((InvalidArgument, TypeError)):
            store.create_queue("r", **wrong)
        with pytest.raises(InvalidArgument):
            store.admin.create_queues([{"name": "r", **wrong}])
    assert store.queues() == [before]
    with pytest.raises(QueueNotFound):
        store.alter_queue("r", text="")


def test_a_refusal_lists_what_its_call_takes(store: AnyStore) -> None:
    """`alter_queue` lists nothing that stays as it was made; `create_queue` lists all."""
    before = store.create_queue("q")
    for fixed in ("kind", "data_file"):
        untyped: Any = {fixed: 1}
        with pytest.raises(
            InvalidArgument, match=f"'{fixed}' of a queue stays as it was made"
        ) as alter:
            store.alter_queue("q", **untyped)
        listed = str(alter.value).partition("there are ")[2].split(", ")
        assert {"capacity", "max_messages", "ttl"} <= set(listed)
        assert not {"kind", "data_file", "type", "persistent", "exist_ok"} & set(listed)
    with pytest.raises(InvalidArgument, match="'colour' is no property of a queue") as create:
        store.create_queue("r", colour=1)  # type: ignore[call-arg]
    listed = str(create.value).partition("there are ")[2].split(", ")
    assert {"kind", "capacity", "max_messages", "data_file", "exist_ok", "type"} <= set(listed)
    assert store.queues() == [before]


def test_a_long_text_in_any_letters_fits(store: AnyStore) -> None:
    """A kibibyte of each, which JSON writes at six times the size."""
    text, properties = "\x01" * 1024, {"\x02" * 10: "\x03" * 1014}
    made = store.create_queue("q", kind="topic", text=text, properties=properties)
    assert (made.text, made.properties) == (text, properties)
    assert store.alter_queue("q", puts=False).text == text


def test_limits_change_online(store: AnyStore) -> None:
    """A larger capacity lets in what was refused; a smaller one keeps what is there."""
    store.create_queue("q", kind="work", capacity=4096)
    store.put("q", b"x" * 3000)
    with pytest.raises(QueueFull):
        store.put("q", b"x" * 3000)
    store.alter_queue("q", capacity=8192)
    store.put("q", b"x" * 3000)
    store.alter_queue("q", capacity=4096, max_messages=1)
    with pytest.raises(QueueFull):
        store.put("q", b"")
    with store.transaction() as txn:
        assert len(txn.get_many("q", 10)) == 2
    store.put("q", b"")
    with pytest.raises(QueueFull, match="at most 1 messages"):
        store.put("q", b"")
    store.alter_queue("q", max_messages=None)
    store.put("q", b"")


def test_a_queue_is_stopped_for_puts(store: AnyStore) -> None:
    """Gets go on, and what was put before is committed."""
    store.admin.create_queues([{"name": "q", "kind": "work"}, "other"])
    txn = store.transaction()
    txn.put("q", b"before")
    eventually(lambda: store.queue("q").open_transactions == 1)  # a joined one tells it later
    store.alter_queue("q", puts=False)
    with pytest.raises(QueueDisabled, match="puts=True"):
        store.put("q", b"refused")
    late = store.transaction()
    with pytest.raises(QueueDisabled):
        _put_and_commit(late)
    late.rollback()
    txn.commit()
    with store.transaction() as txn:
        assert txn.get_many("q", 10).payloads() == [b"before"]
    store.alter_queue("q", puts=True)
    store.put("q", b"again")


def _put_and_commit(txn: Any) -> None:
    """Where only the owner can tell, the commit does."""
    txn.put("other", b"")
    txn.put_many("q", [b"refused"])
    txn.commit()


def test_a_queue_is_stopped_for_gets(store: AnyStore) -> None:
    """Who waits for a message is told; puts and looking go on."""
    store.create_queue("q", kind="work")
    errors: list[BaseException | None] = []

    def wait() -> None:
        with store.transaction() as txn:
            try:
                errors.append(txn.get("q", timeout=120.0))  # type: ignore[arg-type]
            except QueueDisabled as error:
                errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    store.alter_queue("q", gets=False)
    thread.join(120)
    assert isinstance(errors[0], QueueDisabled)
    store.put("q", b"m")
    assert store.browse("q").payloads() == [b"m"]
    with store.transaction() as txn:
        for get in (txn.get, txn.get_many, txn.get_arrow):
            with pytest.raises(QueueDisabled, match="gets=True"):
                get("q")
    store.alter_queue("q", gets=True)
    with store.transaction() as txn:
        assert txn.get_many("q").payloads() == [b"m"]


def test_messages_of_higher_priority_come_first(store: AnyStore) -> None:
    """Within a priority in commit order; what is rolled back returns to its place."""
    store.create_queue("q", kind="work", order="priority")
    for number, priority in enumerate([0, 3, 3, 0, 65535]):
        store.put("q", b"%d" % number, priority=priority)
    order = [b"4", b"1", b"2", b"0", b"3"]
    with store.transaction() as txn:
        first = txn.get("q")
        assert first is not None
        assert (first.payload, first.priority) == (b"4", 65535)
        assert txn.get_many("q", 2).payloads() == order[1:3]
        txn.rollback()
    assert store.browse("q").payloads() == [b"0", b"1", b"2", b"3", b"4"]  # looking: commit order
    with store.transaction() as txn:
        assert txn.get_many("q", 10).payloads() == order
        txn.rollback()
    store.alter_queue("q", order="commit")
    with store.transaction() as txn:
        assert txn.get_many("q", 10).payloads() == sorted(order)


def test_waiting_for_a_message_of_any_priority(store: AnyStore) -> None:
    """A get that waits takes what arrives."""
    store.create_queue("q", kind="work", order="priority")
    threading.Timer(0.2, store.put, ("q", b"late"), {"priority": 9}).start()
    with store.transaction() as txn:
        message = txn.get("q", timeout=120.0)
        assert message is not None
        assert message.priority == 9
        assert txn.get("q", timeout=0.01) is None


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("kind", "useless", "needed"),
    [
        ("work", {"default_priority": 5}, {"order": "priority"}),
        ("work", {"dead_letter": "dead"}, {"max_deliveries": 3}),
        ("work", {"dead_letter": "dead"}, {"keep_expired": True}),
        ("work", {"dead_letter": "dead"}, {"overflow": "dead_letter"}),
        ("topic", {"keep_expired": True, "dead_letter": "dead"}, {"timed": True}),
        ("work", {"grow_to": 8192}, {"capacity": 4096}),
        ("topic", {"keep_seconds": 5.0}, {"keep_forever": False}),
        ("topic", {"keep_bytes": 5}, {"keep_forever": False}),
        ("topic", {"keep_messages": 5}, {"keep_forever": False}),
        ("work", {"max_stream_bytes": 5}, {"schema": None}),
    ],
)
def test_an_option_without_effect_is_refused(
    store: AnyStore, kind: str, useless: dict[str, Any], needed: dict[str, Any]
) -> None:
    """With what it needs, at the making and after; with that it is taken, and stays idle later."""
    store.create_queue("dead")
    without: dict[str, Any] = {
        "order": "commit", "max_deliveries": None, "overflow": "fail", "timed": False,
        "keep_expired": False, "capacity": 8192, "keep_forever": True, "schema": "id bigint",
    }  # fmt: skip
    [(option, value)] = [*useless.items()][:1]
    lacking = {name: without[name] for name in needed}
    refused = pytest.raises(InvalidArgument, match=f"{option} {value!r} would have no effect")
    with refused:
        store.create_queue("q", kind=kind, **useless, **lacking)  # type: ignore[arg-type]
    plain = store.create_queue("q", kind=kind, **lacking)  # type: ignore[arg-type]
    with refused:
        store.alter_queue("q", **useless)
    assert store.queue("q") == plain
    if option == "max_stream_bytes":  # a queue gets no schema later, and loses none
        return
    store.alter_queue("q", **useless, **needed)
    store.alter_queue("q", **lacking)
    idle = store.alter_queue("q", text="words", **useless)
    assert {name: getattr(idle, name) for name in useless} == useless

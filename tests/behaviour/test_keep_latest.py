"""Topics that keep the latest message of each key (`keep_latest`)."""

from __future__ import annotations

import io
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument, PositionLost, QueueFull
from tests.kit.waiting import eventually

from .forms import AnyStore, Clock


def put(store: AnyStore, *pairs: tuple[str, bytes]) -> None:
    """A message of each key with its payload, one after another."""
    for symbol, payload in pairs:
        store.put("prices", payload, attributes={"symbol": symbol})


def rest(store: AnyStore, subscription: str) -> list[bytes]:
    """What it has not read; it is read then."""
    return store.get_many(f"prices/{subscription}").payloads()


def left(owner: Store, count: int) -> None:
    """The maintenance has brought the topic down to so many messages."""
    eventually(lambda: owner.queue("prices").messages == count)


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "options",
    [{}, {"type": "volatile"}, {"order": "priority"}, {"grouped": True}, {"max_deliveries": 3,
     "dead_letter": "dead"}],
    ids=str,
)  # fmt: skip
def test_the_latest_of_each_key_stays(
    store: AnyStore, owner: Store, options: dict[str, Any]
) -> None:
    """For subscriptions that come later, in commit order; others are spared what was before."""
    store.create_queue("dead", kind="work", type=options.get("type", "persistent"))
    store.create_queue("prices", kind="topic", keep_latest="symbol", **options)
    store.subscribe("prices", "slow")
    store.subscribe("prices", "quick")
    put(store, ("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"))
    assert rest(store, "quick")[-1] == b"4"
    put(store, ("b", b"5"), ("a", b"6"))
    left(owner, 3)
    assert rest(store, "slow") == [b"4", b"5", b"6"]
    assert rest(store, "quick") == [b"5", b"6"]
    left(owner, 3)
    store.subscribe("prices", "late")
    assert rest(store, "late") == [b"4", b"5", b"6"]
    with store.transaction() as txn:  # many of one key in one commit
        for payload in (b"7", b"8"):
            txn.put("prices", payload, attributes={"symbol": "c"})
    left(owner, 3)
    assert rest(store, "slow") == [b"8"]


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("key", "options", "puts"),
    [
        ("sender", {}, [{"sender": "a"}, {"sender": "b"}, {"sender": "a"}]),
        ("correlation_id", {}, [{"correlation_id": key} for key in "aba"]),
        ("who", {"schema": "who string, n int"}, [{"who": key, "n": 1} for key in "aba"]),
        ("id", {"schema": "id bigint, n int"}, [{"id": 2**40 + at, "n": 1} for at in (0, 1, 0)]),
        (
            "who",
            {"schema": "n int"},
            [({"n": at}, {"who": key}) for at, key in enumerate("aba")],
        ),
    ],
)  # fmt: skip
def test_what_may_be_the_key(
    store: AnyStore, owner: Store, key: str, options: dict[str, Any], puts: list[Any]
) -> None:
    """A field of the header, a column of texts or whole numbers, an attribute of rows."""
    store.create_queue("prices", kind="topic", keep_latest=key, **options)
    ids = []
    for each in puts:
        if isinstance(each, tuple):
            ids.append(store.put("prices", each[0], attributes=each[1]))
        elif options:
            ids.append(store.put("prices", each))
        else:
            ids.append(store.put("prices", b"x", **each))
    left(owner, 2)
    store.subscribe("prices", "late")
    assert [each.id for each in store.get_many("prices/late")] == ids[1:]


def test_a_selector_is_asked_of_the_latest(store: AnyStore, owner: Store) -> None:
    """What does not match supersedes what did."""
    store.create_queue("prices", kind="topic", keep_latest="symbol")
    store.subscribe("prices", "b", where="symbol = 'b' OR payload = 'yes'")
    put(store, ("a", b"yes"), ("b", b"1"), ("a", b"no"))
    left(owner, 2)
    assert rest(store, "b") == [b"1"]


def test_what_somebody_has_goes_when_it_is_given_back(store: AnyStore, owner: Store) -> None:
    """The holder may commit it; others are spared it, and after a rollback it does not come."""
    store.create_queue("prices", kind="topic", keep_latest="symbol")
    store.subscribe("prices", "one")
    store.subscribe("prices", "two")
    put(store, ("a", b"1"), ("a", b"2"))
    with store.transaction() as txn:
        message = txn.get("prices/one", timeout=60)
        assert message is not None
        has = message.payload
        put(store, ("a", b"3"))
        eventually(lambda: [each.payload for each in store.browse("prices/two")] == [b"3"])
        assert owner.queue("prices").messages <= 2
        txn.rollback()
    assert has in (b"1", b"2")
    left(owner, 1)
    assert rest(store, "one") == [b"3"]


def test_a_key_is_deleted(store: AnyStore, owner: Store) -> None:
    """By an empty payload: whoever has subscribed is told, and who comes later finds nothing."""
    store.create_queue("prices", kind="topic", keep_latest="symbol")
    store.subscribe("prices", "one")
    store.subscribe("prices", "two")
    put(store, ("a", b"1"), ("b", b"2"))
    assert rest(store, "one") == [b"1", b"2"]
    put(store, ("a", b""))
    left(owner, 2)
    assert rest(store, "one") == [b""]
    assert rest(store, "two") == [b"2", b""]
    left(owner, 1)
    store.subscribe("prices", "late")
    assert rest(store, "late") == [b"2"]
    put(store, ("a", b""), ("a", b"3"))  # and it may be there again
    left(owner, 2)
    assert rest(store, "late") == [b"3"]
    with store.transaction() as txn:
        txn.put_stream("prices", io.BytesIO(b""), attributes={"symbol": "b"})
    left(owner, 2)
    for name in ("one", "two", "late"):
        assert store.get_many(f"prices/{name}")
    left(owner, 1)


def test_a_row_of_nothing_but_its_key_deletes_it(store: AnyStore, owner: Store) -> None:
    """In typed queues; a row that is its key alone by the schema does not."""
    store.create_queue("prices", kind="topic", keep_latest="who", schema="who string, n int")
    store.put_many("prices", [{"who": "a", "n": 1}, {"who": "b", "n": 2}, {"who": "a", "n": None}])
    left(owner, 1)
    store.create_queue("names", kind="topic", keep_latest="who", schema="who string")
    store.put_many("names", [{"who": "a"}, {"who": "a"}])
    eventually(lambda: owner.queue("names").messages == 1)


def test_without_the_key_it_is_not_kept(store: AnyStore, owner: Store) -> None:
    """It is read by all who have subscribed, and goes then."""
    store.create_queue("prices", kind="topic", keep_latest="symbol")
    store.subscribe("prices", "one")
    store.put("prices", b"closed")
    put(store, ("a", b"1"))
    store.put("prices", b"open", attributes={"other": "x"})
    assert rest(store, "one") == [b"closed", b"1", b"open"]
    left(owner, 1)


def test_back_to_any_place(store: AnyStore, owner: Store) -> None:
    """What is kept from there on comes again; what was superseded is no lost position."""
    store.create_queue("prices", kind="topic", keep_latest="symbol")
    store.subscribe("prices", "one")
    first = store.put("prices", b"1", attributes={"symbol": "a"})
    put(store, ("b", b"2"), ("a", b"3"), ("c", b"4"))
    left(owner, 3)
    for to, expected in (
        ("earliest", [b"2", b"3", b"4"]), (0, [b"2", b"3", b"4"]), (2, [b"3", b"4"]),
        (f"id:{first}", [b"2", b"3", b"4"]), ("latest", []),
    ):  # fmt: skip
        with store.transaction() as txn:
            txn.seek("prices/one", to, timeout=60)
        assert rest(store, "one") == expected
    store.subscribe("prices", "late", start=f"id:{first}")
    assert rest(store, "late") == [b"2", b"3", b"4"]
    store.alter_queue("prices", keep_latest=None, keep_forever=True)
    with store.transaction() as txn, pytest.raises(PositionLost):
        txn.seek("prices/one", 0, timeout=60)


def test_what_is_superseded_never_fills_a_topic(store: AnyStore) -> None:
    """A put that finds no room has it go first; the latest of each key never gives way."""
    store.create_queue("prices", kind="topic", keep_latest="symbol", max_messages=3)
    store.subscribe("prices", "one")
    for n in range(20):
        put(store, ("ab"[n % 2], b"%d" % n))
    assert rest(store, "one")[-2:] == [b"18", b"19"]
    put(store, ("c", b"20"))
    with pytest.raises(QueueFull):
        put(store, ("d", b"21"))


def test_also_by_age(store: AnyStore, owner: Store, clock: Clock) -> None:
    """With `keep_seconds` a key goes that got nothing for so long, once all have read it."""
    store.create_queue("prices", kind="topic", keep_latest="symbol", keep_seconds=3600)
    store.subscribe("prices", "one")
    put(store, ("a", b"1"), ("b", b"2"), ("a", b"3"))
    clock.forward(1800)
    put(store, ("b", b"4"))
    left(owner, 2)
    clock.forward(2000)
    assert rest(store, "one") == [b"3", b"4"]
    left(owner, 1)
    store.subscribe("prices", "late")
    assert rest(store, "late") == [b"4"]


def test_it_may_begin_and_end_later(store: AnyStore, owner: Store) -> None:
    """With another key what is there is looked at anew; without any, all have to read it."""
    store.create_queue("prices", kind="topic", keep_forever=True)
    for n, place in enumerate(("x", "y", "x", "y")):
        at = {"symbol": "ab"[n // 2], "place": place}
        store.put("prices", b"%d" % n, attributes=at)
    store.alter_queue("prices", keep_latest="symbol", keep_forever=False)
    assert store.queue("prices").keep_latest == "symbol"
    left(owner, 2)
    store.alter_queue("prices", keep_latest="place")
    store.put("prices", b"4", attributes={"symbol": "c", "place": "y"})
    left(owner, 1)
    store.subscribe("prices", "one")
    store.alter_queue("prices", keep_latest=None)
    put(store, ("a", b"5"), ("a", b"6"))
    assert rest(store, "one") == [b"4", b"5", b"6"]
    left(owner, 0)


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"kind": "work"}, "is a work queue"),
        ({"keep_latest": ""}, "name of an attribute"),
        ({"keep_latest": 5}, "name of an attribute"),
        ({"keep_latest": "x" * 201}, "name of an attribute"),
        ({"timed": True}, "timed True"),
        ({"keep_forever": True}, "keep_forever True"),
        ({"keep_bytes": 0}, "keep_bytes 0"),
        ({"keep_messages": 5}, "keep_messages 5"),
        ({"overflow": "drop_oldest"}, "overflow 'drop_oldest'"),
        ({"schema": "symbol double"}, "keep_latest: column 'symbol'"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(
    store: AnyStore, options: dict[str, Any], why: str
) -> None:
    """When it is made and after, and nothing is changed."""
    asked = {"kind": "topic", "keep_latest": "symbol", **options}
    with pytest.raises(InvalidArgument, match=why):
        store.create_queue("prices", **asked)
    schema = asked.pop("schema", None)
    kind = asked.pop("kind")
    before = store.create_queue("prices", kind=kind, schema=schema)
    with pytest.raises(InvalidArgument, match=why):
        store.alter_queue("prices", **asked)
    assert store.queue("prices") == before

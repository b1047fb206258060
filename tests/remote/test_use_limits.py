"""Limits on what the users of a served store have in use: charged, refused by name, given back."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

import quire
from quire.cli import main
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import InvalidArgument, LimitReached, RemoteError
from quire.interface.store import Store as AnyStore
from quire.interface.transaction import Transaction
from quire.remote.access.use_account import UseAccounts
from quire.remote.access.use_limits import (
    OF_USER,
    PUTS_PER_SECOND,
    TRANSACTIONS,
    USE_LIMITS,
    check_limits,
)
from quire.remote.access.users_document import UserEntry, UsersDocument
from quire.remote.ownership.shared_store import SharedStore
from quire.remote.wire.failures import describe_error, raise_error
from quire.remote.wire.protocol import (
    ADD,
    CANCEL,
    COMMITTED,
    GREETING,
    HEAD,
    ID,
    MESSAGE,
    NOTHING,
    PLAIN,
    PUT,
    RESULT,
    ROLLBACK,
    STEP,
    TELL,
    decode_call,
)
from tests.kit.raw_stream import RawStream, add, call, commit, get, good_hello
from tests.kit.users import Users, serving_users
from tests.kit.waiting import eventually

LONG = 1000.0  # seconds that nobody waits
MIB = 1 << 20


@pytest.fixture
def users(tmp_path: Path) -> Users:
    """A file with anna, who is noisy, and bert."""
    users = Users(tmp_path)
    for name in ("anna", "bert"):
        users.grant(name, "admin *:*")
    return users


@pytest.fixture
def url(owner: Store, users: Users) -> Iterator[str]:
    """The port at which they are let in."""
    owner.create_queue("orders", kind="work")
    with serving_users(owner, users) as found:
        yield found


def use_of(owner: Store, name: str = "anna") -> dict[str, Any]:
    """Return a user's use and limits, as the store's status shows them."""
    found: dict[str, Any] = owner.status()["sharing"]["limits"]["users"].get(name, {})
    return found


def in_use(owner: Store, name: str) -> float:
    """Return how much anna has in use."""
    found: float = use_of(owner)[name]["used"]
    return found


def limit(users: Users, owner: Store, **values: float) -> None:
    """Set limits of anna, who is there; they hold when this returns."""
    users.limit("anna", **values)
    eventually(lambda: all(use_of(owner)[n]["limit"] == value for n, value in values.items()))


def opened(url: str, users: Users, name: str = "anna") -> AnyStore:
    """Open the store as a user."""
    return quire.open(url, token=users.tokens[name].text)


def raw(url: str, users: Users, name: str = "anna") -> RawStream:
    """Open a connection as a user. Raises what the answer to its hello reports."""
    stream = RawStream(url, good_hello(token=users.tokens[name].text))
    try:
        stream.words(GREETING.size)
        raise_error(stream.next().header)
    except BaseException:
        stream.close()
        raise
    return stream


def refusal(action: Callable[[], object]) -> LimitReached:
    """Return the error of a limit."""
    with pytest.raises(LimitReached) as error:
        action()
    return error.value


def asked(stream: RawStream, request: bytes) -> int:
    """Return the kind of the answer to a request. Raises what it reports."""
    stream.send(request)
    data = stream.frame()
    if data[4] == RESULT:
        raise_error(decode_call(data).header)
    return data[4]


# The table, and where its values come from


def test_a_limit_of_a_user_comes_before_those_of_roles_and_of_all() -> None:
    """UD4: the highest of the roles' holds; what is said nowhere is as the table has it."""
    document = UsersDocument(
        users={"anna": UserEntry(roles=("clerk", "boss")), "bert": UserEntry()},
        roles={"clerk": (), "boss": ()},
        limits={
            "*": {"connections": 1, "transactions": 1, "waiting_gets": 1},
            "role:clerk": {"transactions": 5, "waiting_gets": 7},
            "role:boss": {"transactions": 3, "waiting_gets": None},
            "anna": {"puts_per_second": 2},
        },
    )
    found = dict(zip((row.name for row in USE_LIMITS), document.limits_of("anna"), strict=True))
    assert found["connections"] == 1
    assert found["transactions"] == 5
    assert found["waiting_gets"] == math.inf
    assert found["puts_per_second"] == 2
    assert found["request_bytes"] == OF_USER[3]
    assert document.limits_of("bert")[0] == 1
    assert UsersDocument.read(document.encode()) == document


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("anna", {"conections": 1}, "there is no limit 'conections'"),
        ("anna", {"connections": 0}, "give a number above 0, or none"),
        ("anna", {"puts_per_second": 1e-320}, "give at least 0.001, or none"),
        ("anna", {"request_bytes": 5}, "give at least 16,777,216, or none"),
        ("carl", {"connections": 1}, "there is no such user or role"),
        ("role:none", {"connections": 1}, "there is no such user or role"),
    ],
)
def test_limits_that_are_wrong_are_refused(
    name: str, values: dict[str, float | None], said: str
) -> None:
    """UL2: with the place, and nothing of the document is used."""
    document = UsersDocument(users={"anna": UserEntry()}, limits={name: values})
    with pytest.raises(InvalidArgument, match=said) as error:
        document.encode()
    assert f"$.limits.{name}" in str(error.value)


@pytest.mark.parametrize("value", ["1e400", '"5"', "true", "[]"])
def test_a_limit_that_is_no_number_is_refused_with_the_name_of_its_user(value: str) -> None:
    """UL2, UD1: as in a file that a person has written."""
    text = (
        f'{{"version": 1, "users": {{"anna": {{}}}}, "limits": {{"anna": {{"bytes": {value}}}}}}}'
    )
    with pytest.raises(InvalidArgument, match=r"at `\$\.limits\.anna"):
        UsersDocument.read(text.encode())


def test_a_limit_that_is_too_large_to_be_a_number_is_refused() -> None:
    """UL2: as any other that is wrong."""
    with pytest.raises(InvalidArgument, match="give a number above 0, or none"):
        check_limits({"connections": 10**400})


def test_an_error_of_a_limit_is_sent_with_what_it_says() -> None:
    """A client has the same class, words and attributes."""
    error = LimitReached("words")
    error.limit, error.value, error.retry_after = "bytes", 10, 0.5
    found = refusal(lambda: raise_error(describe_error(error)))
    assert (str(found), found.limit, found.value, found.retry_after) == ("words", "bytes", 10, 0.5)
    assert isinstance(found, RemoteError)


# Accounts


@pytest.mark.fuzz
def test_an_account_and_that_of_all_hold_what_is_in_use(rng: random.Random) -> None:
    """LA1: against a model: what either of the two limits refuses is charged to neither."""
    now = [0.0]
    accounts = UseAccounts(lambda: now[0])
    accounts.limit({"transactions": 7})
    values = tuple(4.0 for _ in USE_LIMITS)
    found = [accounts.of(name, lambda _: values) for name in ("anna", "bert", "carla")]
    used = [0, 0, 0]
    for _ in range(1000):
        at = rng.randrange(3)
        if rng.random() < 0.5 and used[at]:
            found[at].give_back(TRANSACTIONS)
            used[at] -= 1
            continue
        if used[at] < 4 and sum(used) < 7:
            found[at].take(TRANSACTIONS)
            used[at] += 1
            continue
        error = refusal(partial(found[at].take, TRANSACTIONS))
        is_own = used[at] == 4
        assert error.value == (4 if is_own else 7)
        assert ("user" in str(error)) == is_own
    assert [account.used[TRANSACTIONS.place] for account in found] == used
    assert accounts.in_all.used[TRANSACTIONS.place] == sum(used)


@pytest.mark.fuzz
def test_puts_are_counted_by_the_second(rng: random.Random) -> None:
    """LA3: in no time more than the rate gives, with what may come at once, and a batch."""
    now = [0.0]
    accounts = UseAccounts(lambda: now[0])
    values = tuple(100.0 for _ in USE_LIMITS)
    account = accounts.of("anna", lambda _: values)
    taken: list[tuple[float, int]] = []
    refused = 0
    for _ in range(2000):
        now[0] += rng.random() * 0.02
        batch = rng.choice((1, 1, 5, 40))
        waits = 0.0
        try:
            account.take_puts(batch)
        except LimitReached as error:
            waits = error.retry_after or math.inf
        if waits:
            assert waits <= 0.5
            refused, batch = refused + 1, 1
            now[0] += waits * 1.001
            account.take_puts()
        taken.append((now[0], batch))
    assert refused > 10
    for begin in range(0, len(taken), 50):
        count, start = 0, taken[begin][0]
        for time, batch in taken[begin:]:
            count += batch
            assert count <= 100 + 100 * (time - start) + 40
    assert account.report()["puts_per_second"]["refused"] == refused
    assert account.refused[PUTS_PER_SECOND.place] == refused


def test_what_was_put_too_much_is_made_up_for_at_the_rate_of_now() -> None:
    """LA3: whose rate is raised need not wait as long as the one before would have him wait."""
    now, rate = [0.0], [1.0]
    accounts = UseAccounts(lambda: now[0])
    account = accounts.of("anna", lambda _: [rate[0]] * len(USE_LIMITS))
    account.take_puts(5000)
    assert refusal(account.take_puts).retry_after == 4999
    rate[0] = 1000.0
    accounts.refresh()
    assert refusal(account.take_puts).retry_after == 4
    rate[0] = math.inf
    accounts.refresh()
    account.take_puts()
    assert account.report()["puts_per_second"]["used"] == 0


def test_who_comes_in_has_the_limits_of_others_left_as_they_are() -> None:
    """A server with thousands of users looks at the limits of one for each connection."""
    looked: list[str] = []

    def limits_of(name: str) -> tuple[float, ...]:
        looked.append(name)
        return OF_USER

    accounts = UseAccounts(lambda: 0.0)
    for n in range(100):
        accounts.of(f"user-{n}", limits_of)
    looked.clear()
    accounts.of("user-7", limits_of)
    assert set(looked) == {"user-7"}


# Each limit, by a user


def test_connections_are_limited(url: str, users: Users, owner: Store) -> None:
    """One too many is refused by name; others come in; one that has ended makes room."""
    with ExitStack() as stack:
        streams = [stack.enter_context(closing(raw(url, users))) for _ in range(2)]
        limit(users, owner, connections=2)
        error = refusal(lambda: opened(url, users))
        assert (error.limit, error.value, error.retry_after) == ("connections", 2, 1.0)
        assert "user anna has as many connections as it may, 2" in str(error)
        opened(url, users, "bert").close()
        streams[0].close()
        eventually(lambda: in_use(owner, "connections") == 1)
        stack.enter_context(closing(raw(url, users)))


def _commits(stream: RawStream, owner: Store, users: Users) -> None:
    assert asked(stream, commit(1, 0)) == COMMITTED


def _rolls_back(stream: RawStream, owner: Store, users: Users) -> None:
    assert asked(stream, HEAD.pack(0, ROLLBACK, 1)) == RESULT


def _cancels(stream: RawStream, owner: Store, users: Users) -> None:
    stream.send(HEAD.pack(0, CANCEL, 1))


def _leaves(stream: RawStream, owner: Store, users: Users) -> None:
    stream.close()


def _is_locked(stream: RawStream, owner: Store, users: Users) -> None:
    users.grant("anna", "admin *:*", locked=True)


def _prepares(stream: RawStream, owner: Store, users: Users) -> None:
    header = {"op": "prepare", "xid": "x", "puts": 0, "records": [], "values": []}
    assert asked(stream, call(header, kind=STEP, stream=1)) == RESULT


def _is_aborted(stream: RawStream, owner: Store, users: Users) -> None:
    owner.admin.abort(owner.admin.transactions()[0].id)
    with suppress(quire.QuireError):
        asked(stream, get(1, "orders"))


@pytest.mark.parametrize(
    "end", [_commits, _rolls_back, _cancels, _leaves, _is_locked, _prepares, _is_aborted]
)
def test_open_transactions_are_limited(
    url: str, users: Users, owner: Store, end: Callable[[RawStream, Store, Users], None]
) -> None:
    """A further one is refused and never begun; however one ends, there is room again."""
    with closing(raw(url, users)) as stream, closing(raw(url, users)) as other:
        limit(users, owner, transactions=1)
        assert asked(stream, get(1, "orders")) == NOTHING
        error = refusal(lambda: asked(other, get(1, "orders")))
        assert (error.limit, error.value) == ("transactions", 1)
        assert len(owner.admin.transactions()) == 1
        with opened(url, users, "bert") as store, store.transaction() as txn:
            assert txn.get("orders") is None
        end(stream, owner, users)
        eventually(lambda: in_use(owner, "transactions") == 0)
        if end is not _is_locked:
            assert asked(other, get(2, "orders")) == NOTHING


def test_puts_of_a_transaction_that_is_refused_are_kept_by_the_client(
    url: str, users: Users, owner: Store
) -> None:
    """Its commit is told; the puts are the client's still, and once there is room it commits."""
    with opened(url, users) as store, closing(raw(url, users)) as other:
        store.put("orders", b"0")
        limit(users, owner, transactions=1)
        assert asked(other, get(1, "orders")) == MESSAGE
        txn = store.transaction()
        txn.put("orders", b"1")
        assert refusal(txn.commit).limit == "transactions"
        assert asked(other, HEAD.pack(0, ROLLBACK, 1)) == RESULT
        with suppress(quire.QuireError):
            txn.rollback()
        quire.run_transaction(store, lambda txn: txn.put("orders", b"2"))
        assert store.browse("orders").payloads() == [b"0", b"2"]


def _asks_get(txn: Transaction) -> None:
    txn.get("orders")


def _asks_commit(txn: Transaction) -> None:
    txn.put("orders", b"1")
    txn.commit()


@pytest.mark.parametrize("ask", [_asks_get, _asks_commit])
@pytest.mark.parametrize(
    "told", [{"timeout": LONG}, {"durable": False}, {"owner": "carl"}, {"large": True}], ids=str
)
def test_a_transaction_that_begins_as_it_is_told_is_refused_as_any(
    url: str,
    users: Users,
    owner: Store,
    told: dict[str, Any],
    ask: Callable[[Transaction], None],
) -> None:
    """Whatever its first request is; it can be rolled back, and is begun as told or not at all."""
    with opened(url, users) as store, closing(raw(url, users)) as other:
        store.put("orders", b"0")
        limit(users, owner, transactions=1)
        assert asked(other, get(1, "orders")) == MESSAGE
        txn = store.transaction(**told)
        assert refusal(partial(ask, txn)).limit == "transactions"
        with suppress(quire.QuireError):
            txn.rollback()
        txn = store.transaction(**told)
        txn.put("orders", b"1")
        txn.rollback()
        assert in_use(owner, "transactions") == len(owner.admin.transactions()) == 1
        assert asked(other, HEAD.pack(0, ROLLBACK, 1)) == RESULT
        with store.transaction(**told) as txn:
            assert txn.get("orders") is not None


def test_what_is_told_holds_though_the_transaction_is_begun_by_a_later_request(
    url: str, users: Users, owner: Store
) -> None:
    """At a limit TELL begins nothing; the next request does, as told, where there is room."""
    with closing(raw(url, users)) as stream, closing(raw(url, users)) as other:
        limit(users, owner, transactions=1)
        assert asked(other, get(1, "orders")) == NOTHING
        stream.send(call({"op": "begin", "owner": "carl"}, kind=TELL, stream=1))
        eventually(lambda: use_of(owner)["transactions"]["refused"] == 1)
        assert asked(other, HEAD.pack(0, ROLLBACK, 1)) == RESULT
        assert asked(stream, get(1, "orders")) == NOTHING
        [told] = owner.admin.transactions()
        assert "carl" in str(told.owner)
        assert asked(stream, HEAD.pack(0, ROLLBACK, 1)) == RESULT
        assert asked(stream, get(2, "orders")) == NOTHING
        [untold] = owner.admin.transactions()
        assert "carl" not in str(untold.owner)


@pytest.mark.parametrize("end", [_cancels, _leaves, _is_locked])
def test_gets_that_wait_are_limited(
    url: str, users: Users, owner: Store, end: Callable[[RawStream, Store, Users], None]
) -> None:
    """A further one is refused, not waited for; however one ends, there is room again."""
    with closing(raw(url, users)) as stream, closing(raw(url, users)) as other:
        limit(users, owner, waiting_gets=1)
        stream.send(get(1, "orders", LONG))
        eventually(lambda: in_use(owner, "waiting_gets") == 1)
        error = refusal(lambda: asked(other, get(1, "orders", LONG)))
        assert error.limit == "waiting_gets"
        assert asked(other, get(2, "orders")) == NOTHING
        end(stream, owner, users)
        eventually(lambda: in_use(owner, "waiting_gets") == 0)


def test_a_get_that_is_answered_or_has_waited_in_vain_waits_no_more(
    url: str, users: Users, owner: Store
) -> None:
    """By a message, and by its time-out."""
    with closing(raw(url, users)) as stream:
        for request, kind in ((get(1, "orders", LONG), MESSAGE), (get(2, "orders", 0.01), NOTHING)):
            stream.send(request)
            if kind == MESSAGE:
                eventually(lambda: in_use(owner, "waiting_gets") == 1)
                owner.put("orders", b"1")
            assert stream.frame()[4] == kind
            assert in_use(owner, "waiting_gets") == 0


def test_requests_that_wait_for_others_are_limited(url: str, users: Users, owner: Store) -> None:
    """Here for room: a further one is refused; those before it go on when there is some."""
    owner.create_queue("full", kind="work", max_messages=1, overflow="wait")
    owner.put("full", b"0")
    with closing(raw(url, users)) as stream, closing(raw(url, users)) as other:
        limit(users, owner, waiting_requests=1)
        stream.send(put(1, b"1", b"full"))
        eventually(lambda: in_use(owner, "waiting_requests") == 1)
        assert refusal(lambda: asked(other, put(1, b"2", b"full"))).limit == "waiting_requests"
        assert owner.get("full") is not None
        assert stream.frame()[4] == ID
        eventually(lambda: in_use(owner, "waiting_requests") == 0)


def put(number: int, payload: bytes, queue: bytes = b"orders") -> bytes:
    """A PUT."""
    size = 2 + len(queue) + len(payload)
    return HEAD.pack(size, PUT, number) + len(queue).to_bytes(2, "little") + queue + payload


def test_a_request_that_is_too_long_is_refused_and_the_connection_goes_on(
    url: str, users: Users, owner: Store
) -> None:
    """IN5: by each kind of request; what it was to put is nowhere, and its transaction is open."""
    with opened(url, users) as store:
        store.put("orders", b"1")
        limit(users, owner, request_bytes=16 * MIB)
        process = store.status()["sharing"]["connections"]
        error = refusal(lambda: store.put("orders", bytes(17 * MIB)))
        assert (error.limit, error.value, error.retry_after) == ("request_bytes", 16 * MIB, None)
        assert "16,777,216 bytes" in str(error)
        with store.transaction() as txn:
            txn.put("orders", b"2")
            txn.put("orders", bytes(17 * MIB))
            assert refusal(txn.commit).limit == "request_bytes"
            txn.rollback()
        store.put("orders", b"3")
        assert store.status()["sharing"]["connections"] == process
        assert store.get_many("orders").payloads() == [b"1", b"3"]
        eventually(lambda: in_use(owner, "bytes") == 0)


def test_bytes_under_way_are_limited(url: str, users: Users, owner: Store) -> None:
    """CL10, LA2: a long request counts as it begins to come; one too many is refused."""
    with closing(raw(url, users)) as stream, closing(raw(url, users)) as other:
        limit(users, owner, bytes=32 * MIB)
        long = put(1, bytes(20 * MIB))
        stream.send(long[: 1 << 18])
        eventually(lambda: in_use(owner, "bytes") == len(long))
        error = refusal(lambda: asked(other, long))
        assert (error.limit, error.retry_after) == ("bytes", 0.2)
        with opened(url, users, "bert") as store:
            store.put("orders", bytes(20 * MIB))
        assert asked(other, put(2, b"x")) == ID
        stream.send(long[1 << 18 :])
        assert stream.frame()[4] == ID
        eventually(lambda: in_use(owner, "bytes") == 0)
        stream.send(
            long[: 1 << 18].replace(
                HEAD.pack(len(long) - 12, PUT, 1), HEAD.pack(len(long) - 12, PUT, 2)
            )
        )
        eventually(lambda: in_use(owner, "bytes") == len(long))
        stream.close()
        eventually(lambda: in_use(owner, "bytes") == 0)


def test_puts_are_limited_by_the_second(url: str, users: Users, owner: Store) -> None:
    """Refused with when to put them; a batch counts by its messages; others are not slowed."""
    with opened(url, users) as store:
        store.put("orders", b"")
        limit(users, owner, puts_per_second=2)

        def put_some() -> None:
            for _ in range(1000):
                store.put("orders", b"")

        error = refusal(put_some)
        assert error.limit == "puts_per_second"
        assert error.retry_after is not None
        assert 0 < error.retry_after <= 0.5
        with opened(url, users, "bert") as other:
            for _ in range(20):
                other.put("orders", b"")
        OsEnv().sleep(error.retry_after)
        with store.transaction() as txn:
            txn.put_many("orders", [b""] * 20)
        with store.transaction() as txn:
            txn.put("orders", b"late")
            error = refusal(txn.commit)
            assert error.retry_after is not None
            assert error.retry_after > 5
            txn.rollback()
        limit(users, owner, puts_per_second=1000)
        quire.run_transaction(store, lambda txn: txn.put("orders", b"late"))


@pytest.mark.parametrize("is_open", [False, True])
def test_an_idle_connection_is_ended(
    url: str, users: Users, owner: Store, is_open: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """CL11: with what is open on it; one that waits is not idle, and a store object goes on."""
    with opened(url, users) as store, closing(raw(url, users)) as stream:
        with closing(raw(url, users)) as waiting, closing(raw(url, users, "bert")) as other:
            store.put("orders", b"1")
            store.create_queue("none", kind="work")
            waiting.send(get(1, "none", LONG))
            if is_open:
                assert asked(stream, get(1, "orders")) == MESSAGE
            else:
                assert asked(stream, put(1, b"2")) == ID
            eventually(lambda: in_use(owner, "waiting_gets") == 1)
            limit(users, owner, idle_seconds=0.2)
            eventually(lambda: in_use(owner, "connections") == 2)  # the watch, and the one waiting
            assert in_use(owner, "transactions") == 1
            with pytest.raises((EOFError, OSError)):
                stream.frame()
            assert asked(other, put(1, b"3")) == ID
            owner.put("none", b"4")
            assert waiting.frame()[4] == MESSAGE
        assert "has asked nothing on a connection for as long as it may, 0.2 s" in caplog.text
        limit(users, owner, idle_seconds=1000)
        assert store.get("orders").payload == b"1"  # type: ignore[union-attr]


def test_a_call_that_waits_for_too_long_is_ended(url: str, users: Users, owner: Store) -> None:
    """CL11: a get that is put aside, and one that waits for room; the error says by which limit."""
    owner.create_queue("full", kind="work", max_messages=1, overflow="wait")
    owner.put("full", b"0")
    owner.create_queue("none", kind="work")
    with opened(url, users) as store, closing(raw(url, users)) as stream:
        store.put("orders", b"1")
        limit(users, owner, call_seconds=0.2)
        assert asked(stream, get(1, "orders")) == MESSAGE
        found = [
            refusal(lambda: asked(stream, get(1, "orders", LONG))),
            refusal(lambda: asked(stream, put(2, b"2", b"full"))),
            refusal(lambda: store.get("none", timeout=LONG)),
        ]
        assert {(each.limit, each.value, each.retry_after) for each in found} == {
            ("call_seconds", 0.2, 0.0)
        }
        assert owner.admin.transactions() == []
        eventually(lambda: in_use(owner, "waiting_gets") == in_use(owner, "transactions") == 0)
        message = store.get("orders")
        assert message is not None
        assert message.payload == b"1"


def test_the_time_of_a_call_does_not_begin_before_the_call(
    url: str, users: Users, owner: Store
) -> None:
    """CL11: not with the one before, behind which it was kept."""
    assert isinstance(owner, SharedStore)
    owner.create_queue("full", kind="work", max_messages=1, overflow="wait")
    owner.put("full", b"0")
    waiters = owner.share(OsEnv())._requests.waiters
    with closing(raw(url, users)) as stream:
        stream.send(get(1, "orders", LONG))
        eventually(lambda: in_use(owner, "waiting_gets") == 1)
        stream.send(add(1, ("full", b"1"), form=PLAIN) + commit(1, 1, LONG))
        eventually(lambda: in_use(owner, "bytes") > 0)
        at = monotonic()
        owner.put("orders", b"1")
        assert stream.frame()[4] == MESSAGE
        eventually(lambda: len(waiters) == 1)
        assert [client.began >= at for client in waiters] == [True]


def test_a_user_sees_the_own_use(
    url: str, users: Users, owner: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the store's status; who looks after the store sees that of all, as `quire status` does."""
    users.grant("carl", "put queue:orders")
    with closing(raw(url, users)) as stream, closing(raw(url, users, "bert")):
        limit(users, owner, transactions=1)
        assert asked(stream, get(1, "orders")) == NOTHING
        refusal(lambda: asked(stream, get(2, "orders")))
        with opened(url, users, "anna") as store:
            found = store.status()["sharing"]["limits"]
            assert found["users"].keys() == {"anna", "bert"}
            assert found["in_all"]["transactions"] == {"used": 1, "limit": 100_000, "refused": 0}
            assert found["users"]["anna"]["transactions"] == {"used": 1, "limit": 1, "refused": 1}
        eventually(lambda: retries(lambda: opened(url, users, "carl").close()))
        with opened(url, users, "carl") as store:
            [(about, shown)] = store.status().items()
            assert (about, shown.keys()) == ("sharing", {"limits"})
            [(kind, users_shown)] = shown["limits"].items()
            assert (kind, users_shown.keys()) == ("users", {"carl"})
            assert users_shown["carl"]["connections"] == {"used": 2, "limit": 256, "refused": 0}
        assert main(["status", owner.path]) == 0
        assert re.search(r"^anna +transactions +1 +1 +1$", capsys.readouterr().out, re.MULTILINE)


def retries(action: Callable[[], object]) -> bool:
    """Return True if an action is done without an error."""
    try:
        action()
    except quire.QuireError:
        return False
    return True


# Together


def drawn_request(rng: random.Random, stream: int) -> bytes:
    """Draw some frames of one stream."""
    count = {"op": "count", "arguments": {"source": "orders"}}
    return rng.choice(
        [
            put(stream, bytes(rng.randrange(200_000))),
            get(stream, "orders", rng.choice([0.0, 0.01, LONG])),
            get(stream, "orders") + commit(stream, 0),
            call({"op": "admin.transactions", "arguments": {}}, stream=stream),
            call(count, kind=STEP, stream=stream),
            get(stream, "orders", LONG) + HEAD.pack(0, CANCEL, stream),
            HEAD.pack(4, ADD, stream) + bytes(4),
        ]
    )


@pytest.mark.fuzz
@pytest.mark.parametrize("is_locked", [False, True])
def test_everything_is_given_back(
    url: str, users: Users, owner: Store, rng: random.Random, is_locked: bool
) -> None:
    """LA1: whatever connections have begun, asked and left behind, in the end nothing is used."""
    with ExitStack() as stack:
        streams = [stack.enter_context(closing(raw(url, users))) for _ in range(6)]
        limit(users, owner, transactions=9, waiting_gets=4, puts_per_second=200)
        for stream in streams:
            frames = [drawn_request(rng, n) for n in range(1, rng.randrange(5, 30))]
            stream.socket.setblocking(False)
            with suppress(BlockingIOError):
                stream.socket.send(b"".join(frames))
        if is_locked:
            users.grant("anna", "admin *:*", locked=True)
            eventually(lambda: in_use(owner, "connections") == 0)
    eventually(
        lambda: (
            {
                row.name
                for row in USE_LIMITS
                if row is not PUTS_PER_SECOND and in_use(owner, row.name)
            }
            == set()
        )
    )
    in_all = owner.status()["sharing"]["limits"]["in_all"]
    assert in_all["transactions"]["used"] == in_all["bytes"]["used"] == 0

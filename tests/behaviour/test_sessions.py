"""Sessions: what of a request is kept and told, which opening may go on, what is forgotten."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from quire import Reply, RequestState, put_reply
from quire.engine import EmbeddedStore as Store
from quire.errors import (
    InvalidArgument,
    NotFound,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    ReplyNotFound,
    RequestFailed,
    SessionFenced,
    StateConflict,
    TransactionAborted,
    TransactionClosed,
)
from tests.behaviour.forms import AnyStore, Clock
from tests.kit.limits import Limits
from tests.kit.waiting import SECONDS, eventually

NOT_PUT, PENDING, ANSWERED, TAKEN = (
    RequestState.NOT_PUT, RequestState.PENDING, RequestState.ANSWERED, RequestState.TAKEN,
)  # fmt: skip


def serve_one(store: Any, queue: str, payload: bytes = b"done") -> None:
    """Execute the next request: its get and the reply's put are one transaction."""
    with store.transaction() as txn:
        request = txn.get(queue, SECONDS)
        assert request is not None
        txn.put(request.reply_to, payload, correlation_id=request.correlation_id)


def some_message(found: Any) -> Any:
    """What was got, as something was."""
    assert found is not None
    return found


def some(reply: Reply | None) -> Reply:
    """What came, as something did."""
    assert reply is not None
    return reply


# The four states --------------------------------------------------------------------------------


def test_a_request_goes_through_the_four_states(store: AnyStore, work: str) -> None:
    """A, B, C and D of the client's recovery, as a later opening sees them, too."""
    number = store.session("till").begin(work, b"apples")
    for state, go_on in (
        (NOT_PUT, lambda s: s.submit(number)),
        (PENDING, lambda s: serve_one(store, work)),
        (ANSWERED, lambda s: s.take(number)),
        (TAKEN, lambda s: None),
    ):
        session = store.session("till")
        assert session.resolve(number) == state
        assert session.resolve(number) == state
        go_on(session)
    assert store.session("till").epoch == 6


def test_a_reply_is_what_the_server_has_put(store: AnyStore, owner: Store, work: str) -> None:
    """Its payload, by the request's number; the request says where the reply goes."""
    session = store.session("till")
    numbers = [session.put(work, b"%d" % n) for n in range(3)]
    assert numbers == [1, 2, 3]
    requests = list(owner.browse(work))
    assert {request.reply_to for request in requests} == {session.replies}
    assert len({request.correlation_id for request in requests}) == 3
    for n in range(3):
        serve_one(owner, work, b"done %d" % n)
    for n in (1, 0, 2):  # several at once, taken in any order
        reply = some(session.take(numbers[n], SECONDS))
        assert (reply.number, reply.payload, reply.error) == (numbers[n], b"done %d" % n, None)
    assert session.take(session.put(work, b"3")) is None


def test_what_is_begun_is_put_once(store: AnyStore, work: str) -> None:
    """However often, and by however many openings it is submitted; with what it was to say."""
    first = store.session("till")
    number = first.begin(work, b"apples", attributes={"a": "b"}, sender="me", content_type="x")
    assert first.submit(number)
    assert not first.submit(number)
    assert not store.session("till").submit(number)
    assert store.queue(work).messages == 1
    request = store.get(work)
    assert request is not None
    assert (request.payload, request.sender, request.content_type) == (b"apples", "me", "x")
    assert request.attributes["a"] == "b"
    assert request.attributes["quire.type"] == "request"


def test_what_is_kept_is_committed_with_what_is_done(store: AnyStore, work: str) -> None:
    """A begin, a submit and a take that are rolled back have not been."""
    session = store.session("till")
    number = session.begin(work, b"apples")
    with store.transaction() as txn:
        session.begin(work, b"pears", txn=txn)
        session.submit(number, txn=txn)
        txn.rollback()
    assert session.unfinished() == [number]
    assert session.resolve(number) == NOT_PUT
    session.submit(number)
    serve_one(store, work)
    with suppress(RuntimeError), session.transaction() as txn:
        assert some(session.take(number, txn=txn)).payload == b"done"
        txn.put(work, b"processed")
        raise RuntimeError
    assert session.resolve(number) == ANSWERED
    assert store.queue(work).messages == 0
    with session.transaction() as txn:
        assert some(session.take(number, txn=txn)).payload == b"done"
        txn.put(work, b"processed")
    assert session.resolve(number) == TAKEN
    assert store.queue(work).messages == 1


def test_last_numbers(store: AnyStore, work: str) -> None:
    """Of the request that was put last, and of the *request* whose reply was taken last."""
    session = store.session("till")
    one, two, three = (session.begin(work, b"x") for _ in range(3))
    session.submit(two)
    session.submit(one)
    serve_one(store, work)
    session.take(two)
    info = session.info()
    assert (info.last_begun, info.last_enqueued, info.last_dequeued) == (three, one, two)
    assert (info.unfinished, info.finished) == ([one, three], 1)
    assert store.session("till").info().epoch == info.epoch + 1


def test_numbers_rise_over_openings(store: AnyStore, work: str) -> None:
    """Also where all that is known of the last one was forgotten."""
    session = store.session("till")
    assert [session.begin(work, b"x") for _ in range(2)] == [1, 2]
    assert store.session("till").begin(work, b"x") == 3
    session = store.session("till")
    session.withdraw(3)
    assert session.forget(3) == 1
    assert store.session("till").begin(work, b"x") == 4
    assert store.session("other").begin(work, b"x") == 1


# Replies that others have, or share ---------------------------------------------------------------


def test_a_reply_in_flight_is_there(store: AnyStore, owner: Store, work: str) -> None:
    """C, though a transaction of a client that may be dead has got it; it is taken after that."""
    session = store.session("till")
    number = session.put(work, b"x")
    serve_one(owner, work)
    dead = owner.transaction()
    assert dead.get(session.replies) is not None
    session = store.session("till")
    assert session.resolve(number) == ANSWERED
    assert session.take(number, 0.05) is None
    dead.rollback()
    reply = some(session.take(number, SECONDS))
    assert reply.payload == b"done"


def test_the_next_opening_gives_back_what_the_older_has_got(store: AnyStore, work: str) -> None:
    """Its transactions are ended, so the reply is there at once."""
    older = store.session("till")
    number = older.put(work, b"x")
    serve_one(store, work)
    left = older.transaction()
    assert older.take(number, txn=left) is not None
    session = store.session("till")
    assert session.resolve(number) == ANSWERED
    assert session.take(number, SECONDS) is not None
    with pytest.raises((TransactionAborted, TransactionClosed, StateConflict)):
        left.commit()
    left.rollback()
    assert session.resolve(number) == TAKEN


def test_clients_share_a_reply_queue(store: AnyStore, work: str) -> None:
    """Each takes its own, whoever was answered first."""
    store.create_queue("replies", indexed=["correlation_id"])
    sessions = [store.session(f"till{n}", "replies") for n in range(3)]
    numbers = [session.put(work, b"x") for session in sessions]
    for n in range(3):
        serve_one(store, work, b"for %d" % n)
    assert numbers == [1, 1, 1]
    for n in (2, 0, 1):
        assert sessions[n].resolve(1) == ANSWERED
        reply = some(sessions[n].take(1))
        assert reply.payload == b"for %d" % n
    assert store.queue("replies").messages == 0


# Fencing ------------------------------------------------------------------------------------------


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "call",
    [
        lambda s, n: s.begin("work", b"x"),
        lambda s, n: s.put("work", b"x"),
        lambda s, n: s.submit(n),
        lambda s, n: s.take(n),
        lambda s, n: s.withdraw(n),
        lambda s, n: s.forget(n),
        lambda s, n: s.resolve(n),
        lambda s, n: s.result(n),
        lambda s, n: s.unfinished(),
        lambda s, n: s.remove(),
    ],
)
def test_a_newer_opening_fences_the_older(
    store: AnyStore, work: str, call: Callable[[Any, int], object]
) -> None:
    """Whatever that is asked for then; and nothing of it takes effect."""
    older = store.session("till")
    number = older.begin(work, b"x")
    newer = store.session("till")
    with pytest.raises(SessionFenced, match="opened again"):
        call(older, number)
    assert newer.unfinished() == [number]
    assert newer.submit(number)
    assert store.queue(work).messages == 1


def test_what_was_done_before_is_not_committed_after_it(store: AnyStore, work: str) -> None:
    """A transaction of the older opening that is still open, also one that was not its own."""
    older = store.session("till")
    number = older.begin(work, b"x")
    with store.transaction() as txn:
        older.submit(number, txn=txn)
        store.session("till")
        with pytest.raises(StateConflict):
            txn.commit()
    assert store.queue(work).messages == 0


def test_one_who_waits_for_a_reply_is_fenced(store: AnyStore, owner: Store, work: str) -> None:
    """At once, and not when its time is over."""
    older = store.session("till")
    number = older.put(work, b"x")
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            older.take(number, SECONDS)
        except SessionFenced as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: any("till" in info.owner for info in owner.admin.transactions()) or raised)
    owner.session("till")
    serve_one(owner, work)  # for one who waits without a transaction
    thread.join(SECONDS)
    assert len(raised) == 1


def test_watching_fences_nobody(store: AnyStore, work: str) -> None:
    """It tells the same, and changes nothing."""
    with pytest.raises(NotFound, match="no session"):
        store.session("till", watch=True)
    session = store.session("till")
    number = session.put(work, b"x")
    watching = store.session("till", watch=True)
    assert watching.resolve(number) == PENDING
    for change in (lambda: watching.take(number), lambda: watching.begin(work, b"y")):
        with pytest.raises(InvalidArgument, match="watch"):
            change()
    serve_one(store, work)
    assert watching.resolve(number) == ANSWERED
    assert session.take(number) is not None
    store.session("till")
    assert watching.resolve(number) == TAKEN  # over openings, too


# Results, and what is forgotten -------------------------------------------------------------------


def test_a_result_is_there_for_whoever_asks(store: AnyStore, owner: Store, work: str) -> None:
    """By its number and as often as they like, until it is taken."""
    session = store.session("till")
    number = session.put(work, b"x")
    watching = owner.session("till", watch=True)
    assert watching.result(number) is None
    serve_one(owner, work)
    for each in (watching, session, watching):
        assert some(each.result(number, SECONDS)).payload == b"done"
    session.take(number)
    with pytest.raises(ReplyNotFound, match="taken"):
        watching.result(number)


def test_forgetting(store: AnyStore, work: str) -> None:
    """What has ended, and what was answered: the client has it. What is open stays."""
    session = store.session("till")
    taken, answered, pending, begun = (session.begin(work, b"x") for _ in range(4))
    for number in (taken, answered, pending):
        session.submit(number)
    serve_one(store, work)
    serve_one(store, work)
    session.take(taken)
    assert session.forget(begun) == 2
    assert session.resolve(taken) == session.resolve(answered) == RequestState.FORGOTTEN
    assert session.resolve(pending) == PENDING
    assert session.resolve(begun) == NOT_PUT
    assert session.resolve(begun + 1) == NOT_PUT
    assert store.queue(session.replies).messages == 0


def test_the_last_that_have_ended_are_kept(store: AnyStore, work: str, limits: Limits) -> None:
    """Of older ones it is known that they were, and never that they were not put."""
    limits(FINISHED_KEPT=6, FINISHED_AT_ONCE=4)
    session = store.session("till")
    first = session.begin(work, b"open")
    for number in range(2, 31):
        session.begin(work, b"x")
        session.submit(number)
        serve_one(store, work)
        session.take(number)
    known = [session.resolve(number) for number in range(1, 31)]
    assert known[0] == NOT_PUT
    kept = known.count(TAKEN)
    assert 6 <= kept <= 8 + 4  # in two values of four, and by themselves
    assert known[1:] == [RequestState.FORGOTTEN] * (29 - kept) + [TAKEN] * kept
    assert session.unfinished() == [first]
    assert store.session("till").begin(work, b"x") == 31


def test_withdrawing(store: AnyStore, work: str) -> None:
    """What nobody has begun is never executed; of what somebody has, it is too late."""
    session = store.session("till")
    begun, waiting, served = session.begin(work, b"1"), session.put(work, b"2"), None
    assert session.withdraw(begun)
    assert session.withdraw(waiting)
    assert session.withdraw(waiting)
    assert store.queue(work).messages == 0
    with pytest.raises(ReplyNotFound, match="withdrawn"):
        session.submit(begun)
    with pytest.raises(ReplyNotFound, match="withdrawn"):
        session.take(waiting)
    served = session.put(work, b"3")
    serve_one(store, work)
    assert not session.withdraw(served)
    assert session.resolve(served) == ANSWERED


def test_removing(store: AnyStore, work: str) -> None:
    """Nothing is left of it; one of the same name begins anew, and fences what was open."""
    session = store.session("till")
    session.begin(work, b"x")
    session.remove()
    assert [name for name in store.states.names() if "session" in name] == []
    with pytest.raises(QueueNotFound):
        store.queue(session.replies)
    again = store.session("till")
    assert (again.epoch, again.begin(work, b"x")) == (1, 1)
    with pytest.raises(SessionFenced):
        session.begin(work, b"x")


# What does not come about -------------------------------------------------------------------------


def test_an_expired_request_is_told(store: AnyStore, owner: Store, clock: Clock) -> None:
    """The news comes to who waits for the reply, and stays known."""
    store.create_queue("timed", timed=True)
    session = store.session("till")
    number = session.put("timed", b"x", ttl=10)
    assert session.resolve(number) == PENDING
    clock.forward(11)
    reply = some(session.take(number, SECONDS))
    assert reply.state == RequestState.EXPIRED
    with pytest.raises(RequestFailed, match="expired"):
        _ = reply.payload
    assert session.resolve(number) == RequestState.EXPIRED
    assert some(session.result(number)).state == RequestState.EXPIRED
    assert owner.queue("timed").messages == 0


def test_a_dead_letter_is_told(store: AnyStore, owner: Store) -> None:
    """With what its server has said of it. Put back, it is a request still."""
    store.create_queue("dead")
    store.create_queue("tried", max_deliveries=1, dead_letter="dead")
    session = store.session("till")
    number = session.put("tried", b"x")
    with owner.transaction() as txn:
        request = txn.get("tried")
        assert request is not None
        txn.reject(request, "no such fruit")
    eventually(lambda: session.resolve(number) == RequestState.FAILED)
    assert session.lookup(number).reason == "no such fruit"
    assert not session.lookup(number).is_reported
    owner.admin.redrive("dead")
    serve_one(owner, "tried")
    assert session.resolve(number) == ANSWERED
    reply = some(session.take(number))
    assert reply.payload == b"done"
    assert store.queue(session.replies).messages == 0  # the news of its failure went, too


def test_an_expired_reply_is_told(store: AnyStore, owner: Store, work: str, clock: Clock) -> None:
    """As the reply has asked for that, which says that it was answered."""
    store.create_queue("replies", timed=True, indexed=["correlation_id"])
    session = store.session("till", "replies")
    number = session.put(work, b"x")
    with owner.transaction() as txn:
        request = txn.get(work)
        assert request is not None
        txn.put(
            "replies", b"late", correlation_id=request.correlation_id, reply_to="replies", ttl=5,
            attributes={"quire.reports": "expiry"},
        )  # fmt: skip
    assert session.resolve(number) == ANSWERED
    clock.forward(6)
    eventually(lambda: session.resolve(number) == RequestState.EXPIRED)
    reply = some(session.take(number, SECONDS))
    assert reply.state == RequestState.EXPIRED


# What is refused ----------------------------------------------------------------------------------


def test_what_cannot_be_asked(store: AnyStore, work: str) -> None:
    """Names, numbers, options; each says what to give."""
    session: Any = store.session("till")
    for call in (
        lambda: store.session("a/b"),
        lambda: store.session("x" * 181),
        lambda: session.resolve(0),
        lambda: session.take("1"),
        lambda: session.begin(work, "text"),
        lambda: session.begin(work, b"x", correlation_id="mine"),
        lambda: session.begin(work, b"x", attributes={"a": b"b"}),
        lambda: store.session("till", work),
    ):
        with pytest.raises(InvalidArgument):
            call()
    with pytest.raises(QueueNotFound):
        store.session("new", "nowhere")
    with pytest.raises(ReplyNotFound, match="never begun"):
        session.submit(77)
    with pytest.raises(ReplyNotFound, match="not put"):
        session.take(session.begin(work, b"x"))


def test_a_queue_that_is_full_leaves_it_begun(store: AnyStore) -> None:
    """Nothing is half done: it is put once there is room."""
    store.create_queue("small", max_messages=1)
    session = store.session("till")
    session.put("small", b"1")
    number = session.begin("small", b"2")
    with pytest.raises(QueueFull):
        session.submit(number)
    assert session.resolve(number) == NOT_PUT
    serve_one(store, "small")
    assert session.submit(number)


# What removal and short openings leave -----------------------------------------------------------


@pytest.mark.parametrize("replies", [None, "mine"])
def test_what_a_session_needs_is_not_dropped_while_it_is_there(
    store: AnyStore, work: str, replies: str | None
) -> None:
    """Its reply queue and its state: refused, and the session goes on; both go with it."""
    store.create_queue("mine")
    session = store.session("till", replies)
    number = session.put(work, b"x")
    with pytest.raises(QueueInUse, match=r"replies of session 'till'.*session\('till'\).remove"):
        store.drop_queue(session.replies)
    for state in ("quire.session.till", "quire.sessions"):
        with pytest.raises(InvalidArgument, match=r"session 'till'.*session\('till'\).remove"):
            store.states.drop(state)
    serve_one(store, work)
    assert some(session.take(number, SECONDS)).payload == b"done"
    session.remove()
    assert store.states.names() == []
    assert {queue.name for queue in store.queues()} == {work, "mine"}
    store.drop_queue("mine")


def test_a_session_whose_removal_is_refused_goes_on(store: AnyStore, work: str) -> None:
    """Somebody has got a reply: nothing is removed, and the reply queue is refused as before."""
    session = store.session("till")
    number = session.put(work, b"x")
    serve_one(store, work)
    with store.transaction() as txn:
        assert txn.get(session.replies, SECONDS) is not None
        with pytest.raises(QueueInUse, match="transaction"):
            session.remove()
        txn.rollback()
    with pytest.raises(QueueInUse, match="replies of session 'till'"):
        store.drop_queue(session.replies)
    assert some(session.take(number, SECONDS)).payload == b"done"
    session.remove()
    assert store.states.names() == []


def test_a_removed_session_gets_no_replies_of_another_of_its_name(
    store: AnyStore, work: str
) -> None:
    """Its request 1 is another one, though a server answers the old one only then."""
    before = store.session("till")
    before.put(work, b"old")
    before.remove()
    session = store.session("till")
    number = session.put(work, b"new")
    serve_one(store, work, b"to the old one")
    assert session.resolve(number) == PENDING
    serve_one(store, work, b"to the new one")
    assert some(session.take(number, SECONDS)).payload == b"to the new one"


def test_short_openings_forget_what_has_ended(store: AnyStore, work: str, limits: Limits) -> None:
    """Each of them ends before it has taken as many replies as are looked for at once."""
    limits(FINISHED_KEPT=3, FINISHED_AT_ONCE=4)
    for _ in range(13):
        session = store.session("till")
        session.withdraw(session.begin(work, b"x"))
    last = store.session("till")
    assert last.info().finished <= 4 + 4
    assert last.resolve(1) == RequestState.FORGOTTEN


def test_what_has_ended_is_kept_together(store: AnyStore, work: str, limits: Limits) -> None:
    """Few values for many requests, of each of which all is told as if it had one of its own."""
    limits(FINISHED_KEPT=8, FINISHED_AT_ONCE=4)
    session = store.session("till")
    reason = "no " * 1000
    for number in range(1, 10):
        assert session.put(work, b"x") == number
        if number % 3 == 0:
            assert session.withdraw(number)
            continue
        with store.transaction() as txn:
            request = some_message(txn.get(work, SECONDS))
            error = reason if number % 3 == 2 else None
            put_reply(txn, request, b"done", error=error)
        session.take(number)
    told = [session.lookup(number) for number in range(1, 10)]
    session.begin(work, b"open")
    assert len(store.states.items("quire.session.till")) < 9
    later = [session.lookup(number) for number in range(1, 10)]
    assert [each.state for each in later] == [
        TAKEN,
        RequestState.FAILED,
        RequestState.WITHDRAWN,
    ] * 3
    for before, after in zip(told, later, strict=True):
        cut = before.reason and before.reason[:1000]
        assert after in (before, replace(before, reason=cut))
    assert session.info().finished == 9
    assert session.withdraw(3)
    assert not session.unfinished()[1:]
    with pytest.raises(ReplyNotFound, match="was taken"):
        session.take(1)
    with pytest.raises(ReplyNotFound, match="was withdrawn"):
        session.submit(3)
    again = store.session("till")
    assert again.lookup(2).reason == reason[:1000]
    assert again.forget(2) == 2
    assert [again.resolve(number) for number in (1, 2)] == [RequestState.FORGOTTEN] * 2
    assert [again.resolve(number) for number in (4, 11)] == [TAKEN, NOT_PUT]
    assert again.begin(work, b"x") == 11


def test_what_is_not_due_or_comes_later_is_withdrawn(store: AnyStore) -> None:
    """Nobody has executed it, and nobody will."""
    store.create_queue("timed", timed=True)
    session = store.session("till")
    later, failed = session.put("timed", b"1", delay=3600), session.put("timed", b"2")
    with store.transaction() as txn:
        txn.reject(some_message(txn.get("timed", SECONDS)), "not now", 3600)
        txn.rollback()
    held = session.put("timed", b"3")
    with store.transaction() as txn:
        assert some_message(txn.get("timed", SECONDS)).payload == b"3"
        assert not session.withdraw(held)
        txn.rollback()
    assert session.withdraw(later)
    assert session.withdraw(failed)
    assert store.queue("timed").messages == 1


def test_what_no_put_would_take_is_not_begun(store: AnyStore, work: str) -> None:
    """Else it could never be submitted."""
    session = store.session("till")
    wrong: list[dict[str, Any]] = [
        {"priority": "high"}, {"ttl": float("nan")}, {"attributes": 5}, {"attributes": {1: "a"}},
        {"group_key": ""}, {"sender": "\ud800"}, {"ttl": 1, "delay": 2},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(InvalidArgument):
            session.begin(work, b"x", **options)
    assert session.unfinished() == []


def test_a_label_of_somebody_elses_transaction_is_no_matter(store: AnyStore, work: str) -> None:
    """It looks like that of a session, but for a digit that is no number."""
    with store.transaction(owner="session till \u00b2"):
        assert store.session("till").epoch == 1


@pytest.mark.parametrize("call", ["begin", "put"])
def test_the_number_of_a_prepared_request_is_given_once(
    store: AnyStore, work: str, call: str
) -> None:
    """Nobody knew of it when the next opening began to count."""
    before = store.session("till")
    with before.transaction() as txn:
        first = before.begin(work, b"prepared", txn=txn)
        txn.prepare("in doubt")
    session = store.session("till")
    store.prepared.commit("in doubt")
    second = getattr(session, call)(work, b"another")
    assert second > first
    assert session.unfinished() == [first, second]
    assert session.lookup(first).payload == b"prepared"


# What its queue never takes ----------------------------------------------------------------------

NEVER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a priority": ({}, {"priority": 3}),
    "a time": ({"timed": False}, {"ttl": 5.0}),
    "a group": ({}, {"group_key": "a"}),
    "its size": ({"max_message_bytes": 3}, {}),
    "bytes": ({"schema": "n INT"}, {}),
}


@pytest.mark.parametrize("what", NEVER)
def test_what_no_submit_could_put_is_not_begun(store: AnyStore, what: str) -> None:
    """It is refused, and its session keeps nothing of it; as what goes to a queue that is none."""
    properties, options = NEVER[what]
    store.create_queue("q", **properties)
    session = store.session("till")
    for begin in (session.begin, session.put):
        with pytest.raises(InvalidArgument, match="'q'"):
            begin("q", b"apples", **options)
        with pytest.raises(QueueNotFound):
            begin("nowhere", b"apples")
    assert session.unfinished() == []


@pytest.mark.parametrize("how", ["gone", "typed", "priority"])
def test_what_becomes_impossible_ends_with_the_error(store: AnyStore, how: str) -> None:
    """The loop of a client's start goes through it, and the requests behind it are put."""
    store.create_queue("q", order="priority")
    store.create_queue("other")
    session = store.session("till")
    first = session.begin("q", b"apples", priority=3)
    second = session.begin("other", b"pears")
    if how == "priority":
        store.alter_queue("q", order="commit")
    else:
        store.drop_queue("q")
    if how == "typed":
        store.create_queue("q", schema="n INT")
    session = store.session("till")
    for number in session.unfinished():
        if session.resolve(number) == "not put":
            assert session.submit(number) == (number == second)
    assert session.unfinished() == [second]
    known = session.lookup(first)
    assert known.state == RequestState.FAILED
    assert "'q'" in (known.reason or "")
    with pytest.raises(RequestFailed, match="'q'"):
        _ = some(session.result(first)).payload
    with pytest.raises(ReplyNotFound, match="'q'"):
        session.take(first)
    assert store.queue("other").messages == 1


def test_in_a_transaction_what_is_impossible_is_raised(store: AnyStore) -> None:
    """Its user decides what becomes of the rest; without it the request ends."""
    store.create_queue("q")
    session = store.session("till")
    number = session.begin("q", b"apples")
    store.drop_queue("q")
    with pytest.raises(QueueNotFound), store.transaction() as txn:
        session.submit(number, txn=txn)
    assert session.unfinished() == [number]
    assert not session.submit(number)
    assert session.unfinished() == []


def test_a_request_may_be_a_value(store: AnyStore) -> None:
    """As what is put: by the queue's codec, at begin; what that does not take is refused there."""
    store.create_queue("q", codec="json")
    session = store.session("till")
    session.submit(session.begin("q", {"n": 1}))
    session.put("q", {"n": 2})
    assert [request.value for request in store.get_many("q")] == [{"n": 1}, {"n": 2}]
    with pytest.raises(InvalidArgument, match="codec"):
        session.begin("q", {1, 2})
    with pytest.raises(InvalidArgument):
        session.begin("q", {"n": 1}, content_type="text/plain")
    assert len(session.unfinished()) == 2


def test_a_request_that_is_too_large_is_called_one(store: AnyStore) -> None:
    """By its size, and with the size that it may have."""
    store.create_queue("q")
    session = store.session("till")
    with pytest.raises(InvalidArgument, match="a request of 1048576 bytes") as caught:
        session.begin("q", bytes(1 << 20))
    found = re.search("up to ([0-9]+) bytes", str(caught.value))
    assert found is not None
    assert (1 << 20) - 300 < int(found[1]) < 1 << 20
    assert session.unfinished() == []


def test_words_for_what_has_ended(store: AnyStore) -> None:
    """A request is not what has taken anything."""
    store.create_queue("q")
    session = store.session("till")
    number = session.put("q", b"x")
    serve_one(store, "q")
    assert session.take(number, SECONDS) is not None
    for again in (session.submit, session.take):
        with pytest.raises(ReplyNotFound, match="was answered, and its reply was taken"):
            again(number)

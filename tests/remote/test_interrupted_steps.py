"""A signal at the moments of calls that make several steps: each is whole, or was not made.

In a store that this process owns, and in a joined one. Some moments are drawn; with `-m long`
each has its turn.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

import pytest

import quire
from quire import RequestState
from quire.errors import QuireError
from quire.interface.sessions.session_record import SessionRecord
from quire.interface.store import Store
from quire.interface.transaction import Transaction
from tests.kit.moments import Alarm, alarmed, at_moment, some_moments
from tests.kit.waiting import SECONDS, eventually

MOMENTS = [4, pytest.param(0, marks=pytest.mark.long)]  # of each call; 0: all

pytestmark = [
    pytest.mark.promise(2),
    pytest.mark.parametrize("most", MOMENTS),
    pytest.mark.parametrize("role", ["owner", "joined"]),
    # One in the finaliser of a transaction Python only shows: that, and nothing else.
    pytest.mark.filterwarnings(
        r"ignore:(?s).*\bmoments\.Alarm:pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.filterwarnings("ignore:transaction .* was dropped:ResourceWarning"),
]


class Stores(NamedTuple):
    """Who looks, and who is interrupted."""

    owner: Store
    used: Store

    def come_to_rest(self) -> None:
        """The owner has seen the ends of all transactions, and nothing is held."""
        eventually(lambda: not self.owner.admin.transactions())
        for info in self.owner.queues():
            assert (info.open_transactions, info.reserving) == (0, 0), info
            for place in self.owner.subscriptions(info.name):
                assert place.delivered == 0, place


@pytest.fixture
def stores(store_path: str, role: str) -> Iterator[Stores]:
    """With a queue `q`."""
    with quire.open(store_path) as owner:
        owner.create_queue("q")
        if role == "owner":
            yield Stores(owner, owner)
        else:
            with quire.open(store_path) as joined:
                yield Stores(owner, joined)


def _get(txn: Transaction, ids: list[int]) -> Any:
    return txn.get("q", id=ids[1])


def _get_by_template(txn: Transaction, ids: list[int]) -> Any:
    return txn.get("q", where=TEMPLATE)


def _get_many(txn: Transaction, ids: list[int]) -> Any:
    return txn.get_many("q", 2, where="priority = 0")


def _remove(txn: Transaction, ids: list[int]) -> Any:
    return txn.remove("q", ids[1])


def _hold(txn: Transaction, ids: list[int]) -> Any:
    txn.read("q", id=ids[1], hold=True)


def _taken(given: Any) -> list[bytes]:
    """Which messages that are."""
    if isinstance(given, quire.Message):
        return [given.payload]
    return [b"1"] if given is True else [each.payload for each in given or ()]


TEMPLATE = quire.Template(priority=0)
ACTIONS = [_get, _get_by_template, _get_many, _remove, _hold]


@pytest.mark.parametrize("action", ACTIONS)
def test_promise_2_what_a_keyed_call_has_not_given_is_not_taken(
    stores: Stores,
    rng: Random,
    action: Callable[[Transaction, list[int]], Any],
    most: int,
) -> None:
    """Though its transaction goes on, and commits; what was held is there again at the end."""
    owner, used = stores

    def fill() -> list[int]:
        return owner.put_many("q", [b"0", b"1", b"2"])

    first_ids = fill()
    with used.transaction() as first:
        moments = list(some_moments(lambda: action(first, first_ids), rng, most, last=5))
    assert moments[-1] > 10
    owner.get_many("q")
    for moment in moments:
        ids, given = fill(), list[Any]()
        txn = used.transaction()
        at_moment(lambda txn=txn, ids=ids, given=given: given.append(action(txn, ids)), moment)  # type: ignore[misc]
        with suppress(QuireError):
            txn.commit()
        stores.come_to_rest()
        taken = _taken(given[0]) if given and txn.state == "committed" else []
        left = [each for each in (b"0", b"1", b"2") if each not in taken]
        assert (moment, owner.get_many("q").payloads()) == (moment, left)


def _begin(session: quire.Session, number: int, txn: Transaction | None) -> object:
    return session.begin("q", b"x", txn=txn)


def _put(session: quire.Session, number: int, txn: Transaction | None) -> object:
    return session.put("q", b"x", txn=txn)


def _submit(session: quire.Session, number: int, txn: Transaction | None) -> object:
    return session.submit(number, txn=txn)


def _withdraw(session: quire.Session, number: int, txn: Transaction | None) -> object:
    return session.withdraw(number, txn=txn)


def _take(session: quire.Session, number: int, txn: Transaction | None) -> object:
    return session.take(number, txn=txn)


STEPS = [_begin, _put, _submit, _withdraw, _take]
IN_QUEUE = {RequestState.PENDING: (True, False), RequestState.ANSWERED: (False, True)}


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("step", STEPS)
def test_promise_2_a_step_of_a_session_is_whole(
    stores: Stores, rng: Random, step: Callable[..., object], most: int, *, within: bool
) -> None:
    """What is told of each request is true of its queues, though its transaction commits then.

    `within`: a transaction of the user's. A reply that it has not given is not taken by that.
    """
    owner, used = stores
    session = used.session("till")

    def prepared() -> int:
        """What the step is about."""
        for left in session.unfinished():
            with suppress(QuireError):
                session.withdraw(left)
            session.take(left) if session.resolve(left) == RequestState.ANSWERED else None
        owner.get_many("q")
        if step in (_begin, _put):
            return 0
        number = session.begin("q", b"x")
        if step is not _submit:
            session.submit(number)
        if step is _take:
            with owner.transaction() as answering:
                request = answering.get("q")
                assert request is not None
                quire.put_reply(answering, request, b"y")
        return number

    number = prepared()
    with used.transaction() as first:
        own = first if within else None
        moments = list(some_moments(lambda: step(session, number, own), rng, most))
    assert moments[-1] > 10
    for moment in moments:
        number, given = prepared(), list[object]()
        txn = used.transaction() if within else None
        at_moment(lambda n=number, t=txn, to=given: to.append(step(session, n, t)), moment)  # type: ignore[misc]
        if txn is not None:
            with suppress(QuireError):
                txn.commit()
        stores.come_to_rest()
        waiting, replies = (
            {each.correlation_id for each in owner.browse(name)} for name in ("q", session.replies)
        )
        known = {number, *session.unfinished()} - {0}
        for each in known:
            state, own_id = session.resolve(each), session._record.correlation_of(each)
            seen = (own_id in waiting, own_id in replies)
            assert (moment, state, seen) == (moment, state, IN_QUEUE.get(state, (False, False)))
            if within and state == RequestState.TAKEN:
                assert (moment, given) != (moment, [])
        assert len(waiting) <= len(known)


@pytest.mark.parametrize("name", [None, "till"])
def test_promise_2_a_listener_tells_all_and_nothing_twice(
    stores: Stores, rng: Random, name: str | None, most: int
) -> None:
    """A notice that a signal kept from its listener is told by the next call."""
    owner, used = stores
    with used.listeners.add("q", name=name) as listener:

        def hear() -> None:
            listener.get(0.0)

        for _ in range(2):
            owner.put("q", b"x")
            hear()
        owner.put("q", b"x")
        for moment in some_moments(hear, rng, most, last=12):
            ids = [owner.put("q", b"x") for _ in range(2)]
            told: list[Any] = []
            at_moment(lambda told=told: told.append(listener.get(0.0)), moment)  # type: ignore[misc]
            ids.append(owner.put("q", b"x"))
            while (notice := listener.get(0.0)) is not None:
                told.append(notice)
            heard = [each for notice in told if notice is not None for each in notice.ids]
            assert (moment, heard) == (moment, ids)


def test_promise_2_a_session_is_removed_though_it_was_interrupted(
    stores: Stores, rng: Random, most: int
) -> None:
    """Asked once more, it is gone, with all that it kept."""
    owner, used = stores

    def filled() -> quire.Session:
        session = used.session("till")
        session.put("q", b"x")
        return session

    for moment in some_moments(filled().remove, rng, most):
        session = filled()
        at_moment(session.remove, moment)
        with suppress(quire.SessionFenced):  # it is gone already
            session.remove()
        stores.come_to_rest()
        assert owner.states.items("quire.sessions") == {}
        assert owner.states.items("quire.session.till") == {}
        assert session.replies not in [info.name for info in owner.queues()]
        owner.get_many("q")


def test_ctrl_c_ends_a_take_that_waits_within_a_transaction(stores: Stores, most: int) -> None:
    """At once; the transaction goes on, and the request is as it was."""
    session = stores.used.session("till")
    number = session.put("q", b"x")
    with stores.used.transaction() as txn:
        timer = threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            session.take(number, SECONDS, txn=txn)
        timer.join()
    assert session.resolve(number) == RequestState.PENDING
    stores.come_to_rest()


def test_a_signal_between_the_changes_of_a_step_waits_for_its_end(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """So the request is in its queue, and kept as put; a reply that is not given is not taken."""
    session = stores.used.session("till")
    with alarmed() as alarm, stores.used.transaction() as txn:
        monkeypatch.setattr(SessionRecord, "_set", after(alarm, SessionRecord._set))
        with pytest.raises(Alarm):
            session.put("q", b"x", txn=txn)
    monkeypatch.undo()
    [number] = session.unfinished()
    assert session.resolve(number) == RequestState.PENDING
    with stores.owner.transaction() as txn:
        request = txn.get("q")
        assert request is not None
        quire.put_reply(txn, request, b"y")
    with alarmed() as alarm, stores.used.transaction() as txn:
        monkeypatch.setattr(SessionRecord, "_set", after(alarm, SessionRecord._set))
        with pytest.raises(Alarm):
            session.take(number, txn=txn)
        assert txn.state == "rolled back"
    monkeypatch.undo()
    assert session.resolve(number) == RequestState.ANSWERED


def after(first: Callable[[], None], then: Callable[..., Any]) -> Callable[..., Any]:
    """One after the other."""

    def both(*args: Any) -> Any:
        first()
        return then(*args)

    return both


def test_a_step_that_fails_half_way_ends_its_transaction(stores: Stores, most: int) -> None:
    """Else its commit would put a request that is kept as one that was not put."""
    session = stores.used.session("till")
    number = session.begin("q", b"x")
    with stores.used.transaction() as txn:
        for key in "ab":
            txn.set_value("much", key, bytes(1 << 20))
        for size in range(1 << 20, 0, -100):  # what is left of 4 MiB
            with suppress(quire.InvalidArgument):
                txn.set_value("much", "d", bytes(size))
                break
        with pytest.raises(quire.InvalidArgument, match="in several"):
            session.submit(number, txn=txn)
        assert txn.state == "rolled back"
    assert session.resolve(number) == RequestState.NOT_PUT
    assert stores.owner.queue("q").messages == 0

"""The record of a session in the store, and the steps of its requests within transactions.

- A session is a state of its own (`quire.session.NAME`), of which a request is a value, and an
  entry of the state `quire.sessions`: how often it was opened, and where its replies come to. So
  whatever a step says of a request is committed with what it does to the queues, or not at all.
- KS2: each step reads that entry in its transaction. Where another opening has changed it, the
  step raises SessionFenced; where that happens later, the commit fails. Nothing of an older opening
  takes effect after the newer one has begun, but for what was prepared by then: that was in doubt,
  and its number, which nobody could know of, is passed over once it is committed.
- KS3: the number of a request is above all that were begun before it, and is given to one request
  only. A number that is not kept, and is not above all that were dropped, was forgotten; it never
  counts as one that was not put.
- KS4: the put of a request and "it was put" are one transaction, as are the taking of its reply
  and "it was taken". So what is kept tells the states A and D of the client's recovery (Bernstein,
  001), and of what was put and not taken the reply queue tells: C where its reply is there, also
  where a transaction has got it that has not ended, B else.
- KS5: a request that was put is never put again, whatever is repeated.
- KS6: a step of a user's transaction that fails, or is interrupted, between its changes ends that
  transaction: else its commit would make a part of the step true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Final

from quire.arguments import check_name
from quire.env import OsEnv
from quire.errors import InvalidArgument, LockTimeout, ReplyNotFound, SessionFenced
from quire.interface.transaction import Transaction
from quire.limits import MAX_STATE_VALUE_BYTES
from quire.messages.message import Message
from quire.messages.message_fields import Fields, with_moments
from quire.messages.message_types import (
    EXCEPTION,
    EXPIRY,
    REPORTS,
    REQUEST,
    TYPE,
    check_ends_only,
    requested_reports,
)
from quire.moments import check_moment
from quire.reports.info import QueueInfo
from quire.reports.requests import RequestState, SessionInfo
from quire.selectors.template import Template

from .kept_requests import (
    BEGUN,
    ENDED_PREFIX,
    PUT,
    KeptRequest,
    ended_places,
    pack_ended,
    unpack_ended,
)
from .limits import MAX_SESSION_NAME
from .reply import Reply
from .session_opening import PREFIX, SESSIONS, Opening

_LAST_ENQUEUED: Final = "last_enqueued"
_LAST_DEQUEUED: Final = "last_dequeued"
_DROPPED: Final = "dropped"  # the highest number that is not kept any more
_MOVES: Final = "moves"  # how often requests that have ended were moved together
_TIMES: Final = ("expires_at", "deliver_at")
_OPTIONS: Final = frozenset(
    {"priority", "group", "sender", "content_type", "ttl", "delay", "attributes", "group_key"}
).union(_TIMES)
_ENV: Final = OsEnv()


def check_session(name: object) -> str:
    """The name of a session. Raises InvalidArgument."""
    found = check_name(name, "session")
    if len(found) > MAX_SESSION_NAME:
        raise InvalidArgument(
            f"session name {name!r:.100}: give up to {MAX_SESSION_NAME} characters"
        )
    return found


def check_number(number: object) -> int:
    """Check the number of a request. Raises InvalidArgument."""
    if type(number) is not int or not 0 < number < 1 << 63:
        raise InvalidArgument(f"request {number!r:.100}: give the number that `begin` returned")
    return number


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options of a put, and return them as JSON keeps them. Raises InvalidArgument."""
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise InvalidArgument(
            f"option {unknown[0]!r} of a request: there are {', '.join(sorted(_OPTIONS))}; "
            "correlation_id and reply_to are the session's own"
        )
    found = {name: one for name, one in options.items() if one is not None}
    for name in found.keys() & set(_TIMES):
        found[name] = check_moment(name, found[name])
    for name in found.keys() & {"ttl", "delay"}:
        span = found[name]
        found[name] = span.total_seconds() if hasattr(span, "total_seconds") else span
    Fields(**with_moments(found, _ENV.now_us))  # else no submit could put it
    if "attributes" in found:
        found["attributes"] = dict(found["attributes"])
        check_ends_only(found["attributes"])
    return found


def check_puttable(info: QueueInfo, request: KeptRequest) -> None:
    """Raises InvalidArgument for a request that its queue, as it is, never takes."""
    options, name = request.options, info.name
    times = sorted(options.keys() & {*_TIMES, "ttl", "delay"})
    never = info.timed is False or (info.timed is None and info.kind != "work")
    size, kept = len(request.payload or b""), len(request.value())
    if kept > MAX_STATE_VALUE_BYTES:
        raise InvalidArgument(
            f"a request of {size} bytes: a session keeps it until it is put, up to "
            f"{MAX_STATE_VALUE_BYTES - kept + size} bytes with these options; put what is larger "
            "into a queue of its own, and name it in the request"
        )
    for is_refused, why in (
        (info.schema is not None, "it is typed, and a request is bytes"),
        ("priority" in options and info.order == "commit", "it does not obey its priority"),
        (never and times, f"it does not obey its {' and '.join(times)}"),
        ("group_key" in options and not info.grouped, "it does not obey its group_key"),
        (
            info.max_message_bytes is not None and size > info.max_message_bytes,
            f"it takes up to {info.max_message_bytes} bytes each",
        ),
    ):
        if is_refused:
            raise InvalidArgument(
                f"request to queue {name!r}: {why}: begin another one, or alter_queue it first"
            )


def key_of(number: int) -> str:
    """Under which a request is kept."""
    return f"{number:020d}"


@contextmanager
def _wholly(txn: Transaction) -> Iterator[None]:
    """Run the rest of a step after its first change, or roll the transaction back (KS6)."""
    try:
        yield
    except BaseException:
        txn.rollback()
        raise


class SessionRecord:
    """The record of a session. Thread-safe; each transaction is used by one thread at a time."""

    def __init__(self, name: str, opening: Opening) -> None:
        self.name: Final = name
        self.state: Final = PREFIX + name
        self.opening: Final = opening
        self._numbers = count(1)

    @property
    def label(self) -> str:
        """The label of its transactions, by which the next opening finds and ends them."""
        return f"session {self.name} {self.opening.epoch}"

    def wanted(self, number: int) -> Template:
        """Return the template of a reply to the request, and of a report on it."""
        return Template(correlation_id=self.correlation_of(number))

    def correlation_of(self, number: int) -> str:
        """By which the request and its reply belong together: of no other request of the store.

        Nor of a session that was removed and had the name: its requests may be answered still.
        """
        return f"{self.name}:{self.opening.drawn:016x}:{number}"

    # What is kept

    def number_from(self, values: Mapping[str, bytes]) -> None:
        """Go on behind all numbers of which something is known (KS3)."""
        self._numbers = count(self._last_number(values) + 1)

    def next_number(self) -> int:
        """Return the number of a request that is to be begun."""
        return next(self._numbers)

    def fence(self, txn: Transaction) -> None:
        """Raises SessionFenced (KS2)."""
        value = txn.get_value(SESSIONS, self.name)
        if value is None or not Opening.of(self.name, value).is_same(self.opening):
            raise self.fenced()

    def pass_to(self, txn: Transaction, opening: Opening | None) -> None:
        """Have the session be another opening's, or nobody's; twice is once. Raises SessionFenced.

        As the session is removed: no other opening takes its place this way.
        """
        value = None if opening is None else opening.value()
        if txn.get_value(SESSIONS, self.name) != value:
            self.fence(txn)
            txn.set_value(SESSIONS, self.name, value)

    def fenced(self) -> SessionFenced:
        """Return the error to raise where another opening has taken its place."""
        return SessionFenced(
            f"session {self.name!r} was opened again elsewhere, or removed: this opening "
            f"({self.opening.epoch}) may do nothing more; open it again where it is to go on"
        )

    def read(self, txn: Transaction, number: int) -> KeptRequest | None:
        """A request, as the transaction sees it."""
        value = txn.get_value(self.state, key_of(number))
        return None if value is None else self.kept(number, value)

    def kept(self, number: int, value: bytes) -> KeptRequest:
        """Raises StoreCorrupt."""
        return KeptRequest.of(value, f"request {number} of session {self.name!r}")

    def found(self, txn: Transaction, number: int) -> KeptRequest:
        """A request of which something is kept. Raises SessionFenced, ReplyNotFound."""
        self.fence(txn)
        found = self.read(txn, number) or self._all_ended(txn).get(number)
        if found is None:
            raise ReplyNotFound(
                f"session {self.name!r} keeps nothing of request {number}: it was forgotten or "
                "never begun; see `resolve`"
            )
        return found

    def _set(self, txn: Transaction, number: int, request: KeptRequest) -> None:
        txn.set_value(self.state, key_of(number), request.value())

    # Steps

    def begin(self, txn: Transaction, number: int, request: KeptRequest) -> bool:
        """Keep a request, which is not put (transaction 0 of 001); False: the number is taken."""
        self.fence(txn)
        found = self.read(txn, number)
        if found is None:
            self._set(txn, number, request)
        return found is None or found.begun_us == request.begun_us

    def submit(self, txn: Transaction, number: int) -> bool:
        """Put what was begun; False: it was put before (KS4, KS5)."""
        request = self.found(txn, number)
        if request.state == PUT:
            return False
        if request.payload is None:
            raise ReplyNotFound(
                f"request {number} of session {self.name!r} {request.how_it_ended}: begin another "
                "one, if it is to be done still"
            )
        self.put(txn, number, request)
        return True

    def end(self, txn: Transaction, number: int, reason: str) -> None:
        """Note that it has failed before it was put, unless it was put meanwhile; twice is once."""
        request = self.found(txn, number)
        if request.state == BEGUN:
            ended = request.ended(RequestState.FAILED, _ENV.now_us(), reason)
            self._set(txn, number, ended)

    def put_at_once(self, txn: Transaction, number: int, request: KeptRequest) -> bool:
        """Put what was not begun before, unless that has taken place already (KS5).

        False: the number is taken.
        """
        self.fence(txn)
        found = self.read(txn, number)
        if found is None:
            self.put(txn, number, request)
        return found is None or found.begun_us == request.begun_us

    def put(self, txn: Transaction, number: int, request: KeptRequest) -> None:
        """Put it, and note that (transaction 1 of 001). It was fenced, and was never put."""
        options = dict(request.options)
        attributes = dict(options.pop("attributes", {}))
        attributes.setdefault(TYPE, REQUEST)
        attributes[REPORTS] = requested_reports(
            [*attributes.get(REPORTS, "").split(), EXCEPTION, EXPIRY]
        )
        txn.put(
            request.queue,
            b"" if request.payload is None else request.payload,
            attributes=attributes,
            correlation_id=self.correlation_of(number),
            reply_to=self.opening.replies,
            **options,
        )
        with _wholly(txn):
            self._set(txn, number, request.put())
            txn.set_value(self.state, _LAST_ENQUEUED, str(number).encode())

    def awaited(self, txn: Transaction, number: int) -> KeptRequest:
        """A request whose reply may be taken. Raises ReplyNotFound."""
        request = self.found(txn, number)
        if request.state != PUT:
            how = "was not put: submit it" if request.state == BEGUN else request.how_it_ended
            raise ReplyNotFound(f"request {number} of session {self.name!r} {how}; see `resolve`")
        return request

    def took(self, txn: Transaction, number: int, message: Message) -> Reply:
        """Note that the transaction has taken what came of the request (transaction 3 of 001).

        Where that is the news of a failure, and a reply is there after all, it takes that, too.
        """
        with _wholly(txn):
            reply = Reply.of(number, message)
            while reply.state != RequestState.ANSWERED:
                other = txn.get(self.opening.replies, where=self.wanted(number))
                if other is None:
                    break
                reply = Reply.of(number, other)
            state = RequestState.TAKEN if reply.state == RequestState.ANSWERED else reply.state
            request = self.read(txn, number)
            assert request is not None
            self._set(txn, number, request.ended(state, _ENV.now_us(), reply.reason))
            txn.set_value(self.state, _LAST_DEQUEUED, str(number).encode())
        return reply

    def withdraw(self, txn: Transaction, number: int) -> bool:
        """Have nobody execute it; False: it is too late."""
        request = self.found(txn, number)
        if request.has_ended:
            return request.state == RequestState.WITHDRAWN
        if request.state == PUT and not self._take_back(txn, request.queue, number):
            return False
        with _wholly(txn):
            self._set(txn, number, request.ended(RequestState.WITHDRAWN, _ENV.now_us()))
        return True

    def _take_back(self, txn: Transaction, queue: str, number: int) -> bool:
        """Remove what was put, also what is not due yet; False: others have it, or had it."""
        for each in txn.describe(queue, where=self.wanted(number)):
            with suppress(LockTimeout):
                return txn.remove(queue, each.id)
        return False

    def move_ended(self, txn: Transaction, numbers: list[int]) -> None:
        """Keep these, which have ended, together, in place of the oldest such (KE1, KE2)."""
        self.fence(txn)
        requests = {number: self.read(txn, number) for number in numbers}
        ended = {number: one for number, one in requests.items() if one and one.has_ended}
        if not ended:
            return  # it was done already
        moves, places = int(txn.get_value(self.state, _MOVES) or b"0"), ended_places()
        place = places[moves % len(places)]
        before = self._ended_at(txn, place)
        for number in ended:
            txn.set_value(self.state, key_of(number), None)
        txn.set_value(self.state, place, pack_ended(ended))
        txn.set_value(self.state, _MOVES, str(moves + 1).encode())
        self._note_dropped(txn, before)

    def _ended_at(self, txn: Transaction, place: str) -> dict[int, KeptRequest]:
        return unpack_ended(txn.get_value(self.state, place), self.name)

    def _all_ended(self, txn: Transaction) -> dict[int, KeptRequest]:
        """Those that were moved together."""
        found: dict[int, KeptRequest] = {}
        for place in ended_places():
            found |= self._ended_at(txn, place)
        return found

    def _note_dropped(self, txn: Transaction, numbers: Iterable[int]) -> None:
        before = int(txn.get_value(self.state, _DROPPED) or b"0")
        after = max(before, *numbers, 0)
        if after != before:
            txn.set_value(self.state, _DROPPED, str(after).encode())

    def forget(self, txn: Transaction, numbers: list[int]) -> int:
        """Keep nothing of these any more, and drop their replies; how many.

        Those that have not ended, and to which there is no reply yet, stay.
        """
        self.fence(txn)
        gone = [number for number in numbers if self._has_gone(txn, number)]
        for number in gone:
            txn.set_value(self.state, key_of(number), None)
        for place in ended_places():
            ended = self._ended_at(txn, place)
            left = {number: one for number, one in ended.items() if number not in numbers}
            if left != ended:
                value = pack_ended(left) if left else None
                txn.set_value(self.state, place, value)
                gone += ended.keys() - left.keys()
        self._note_dropped(txn, gone)
        return len(gone)

    def _has_gone(self, txn: Transaction, number: int) -> bool:
        request = self.read(txn, number)
        if request is None or request.has_ended:
            return request is not None
        if request.state == BEGUN:
            return False
        replies = 0
        while txn.get(self.opening.replies, where=self.wanted(number)) is not None:
            replies += 1
        return replies > 0

    # Looking

    def requests(self, values: Mapping[str, bytes]) -> dict[int, KeptRequest]:
        """All that are kept, by number, in its order."""
        return dict(sorted((self._alone(values) | self.ended_together(values)).items()))

    def ended_together(self, values: Mapping[str, bytes]) -> dict[int, KeptRequest]:
        """Those that have ended and were moved together, by number."""
        found: dict[int, KeptRequest] = {}
        for key, value in values.items():
            if key.startswith(ENDED_PREFIX):
                found |= unpack_ended(value, self.name)
        return found

    def _alone(self, values: Mapping[str, bytes]) -> dict[int, KeptRequest]:
        return {int(key): self.kept(int(key), one) for key, one in values.items() if key.isdigit()}

    def ended_alone(self, values: Mapping[str, bytes]) -> list[int]:
        """Those that have ended, and were not moved together; in their order."""
        return sorted(number for number, one in self._alone(values).items() if one.has_ended)

    def _last_number(self, values: Mapping[str, bytes]) -> int:
        """Return the number of the latest request that is known."""
        return max(dropped_up_to(values), *self.requests(values), 0)

    def info(self, values: Mapping[str, bytes]) -> SessionInfo:
        """For users."""
        requests = self.requests(values)
        unfinished = [number for number, one in requests.items() if not one.has_ended]
        return SessionInfo(
            self.name,
            self.opening.epoch,
            self.opening.replies,
            self._last_number(values),
            int(values.get(_LAST_ENQUEUED, b"0")),
            int(values.get(_LAST_DEQUEUED, b"0")),
            unfinished,
            len(requests) - len(unfinished),
        )


def dropped_up_to(values: Mapping[str, bytes]) -> int:
    """The highest number of which nothing is kept any more; 0: there is none."""
    return int(values.get(_DROPPED, b"0"))

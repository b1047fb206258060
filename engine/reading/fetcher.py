"""Taking positions and delivering their messages: what all readers of a store share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from quire.arguments import Bytes
from quire.batches.delivered_slice import Delivered
from quire.block import StreamedBlock
from quire.definitions.retry import Retry
from quire.engine.delivery.steady_clock import clock_us
from quire.engine.queues.queue import InFlightRange, Queue
from quire.engine.queues.read_structure import Pointer
from quire.engine.queues.subscription import Subscription
from quire.engine.records.format import LTDS
from quire.engine.state.sections.failures import Failure
from quire.env import Env
from quire.errors import QueueInUse, StoreCorrupt, StoreError, TransactionError
from quire.limits import HANDOUT_RUNS
from quire.messages.payload_reader import Stream
from quire.rows.row_block import RowBlock

from .block_reader import BlockMoved, BlockReader
from .indexing import catch_up, group_of

DeliveryRuns = list[
    tuple[int, int, int]
]  # positions [start, end) and how often they are delivered now

LookedUp = Callable[[int, int], list[Pointer]]  # the first messages of [start, end)


class DeliveryLog(Protocol):
    """Makes durable what becomes of deliveries."""

    def hand_out(
        self, queue: Queue, subscription: Subscription, runs: Sequence[tuple[int, int, int]]
    ) -> None:
        """These positions are about to be delivered. Raises StoreFailed, DiskFull."""

    def take_back(
        self, queue: Queue, subscription: Subscription, runs: Sequence[tuple[int, ...]]
    ) -> None:
        """These were not delivered after all. Does not raise."""

    def fail(self, failures: Sequence[Failure]) -> None:
        """These have failed. Does not raise."""


class DeliveryRequest:
    """A request for messages of a subscription, or for a seek; and what was taken by it.

    `runs` grows in one step with what is taken, under the queue's lock: so whatever ends the call,
    what it has taken is known, and given back by who made the request.
    """

    __slots__ = ("is_noted", "queue", "runs", "subscription", "taker", "wanted")

    def __init__(
        self, queue: Queue, subscription: Subscription, taker: object, wanted: Callable[[], bool]
    ) -> None:
        """`taker`: what a transaction has got. `wanted`: whether it still waits."""
        self.queue = queue
        self.subscription = subscription
        self.taker = taker
        self.wanted = wanted
        self.runs: DeliveryRuns = []
        self.is_noted = False  # that these are delivered, where deliveries are noted


class Fetcher:
    """Takes positions and delivers messages. Thread-safe. `queues`: all, at the opening."""

    def __init__(
        self, env: Env, reader: BlockReader, noting: DeliveryLog, queues: Iterable[Queue]
    ) -> None:
        self._env = env
        self._reader = reader
        self._noting = noting
        readers = [(queue, each) for queue in queues for each in queue.readers()]
        self._delayed = {(queue, each) for queue, each in readers if each.later}
        # Of which somebody waits, without a thread: when the next message may be due.
        self._awaited: dict[tuple[Queue, Subscription], float] = {}

    def take(self, asking: DeliveryRequest, limit: int, timeout: float) -> DeliveryRuns:
        """The next positions for the subscription, up to `limit`, now in flight.

        Waits up to `timeout` seconds for the first, while it is wanted. Raises TransactionError to
        the taker that is to move the subscription.
        """
        queue, subscription, runs = asking.queue, asking.subscription, asking.runs
        if subscription.seeker is asking.taker:
            raise moving(queue, subscription)
        deadline = self._env.monotonic() + timeout if timeout > 0 else 0.0
        while True:
            due = math.inf if subscription.is_plain else self.look(queue, subscription)
            is_ready = self._take(asking, limit, min(timeout, due))
            if runs:
                self.hand_out(asking)
            elif asking.wanted():
                if timeout > 0:
                    timeout = deadline - self._env.monotonic()
                if is_ready or (timeout > 0 and due < math.inf):
                    continue
            return runs

    def hand_out(self, asking: DeliveryRequest) -> None:
        """Note deliveries of taken messages before they happen, where they are noted."""
        queue, subscription, runs = asking.queue, asking.subscription, asking.runs
        if subscription.most:
            self.give_back(queue, subscription, runs, HANDOUT_RUNS)
            self._noting.hand_out(queue, subscription, runs)
            asking.is_noted = True

    def note_untouched(
        self, queue: Queue, subscription: Subscription, runs: Sequence[tuple[int, ...]]
    ) -> None:
        """Take back the notes on these deliveries, which did not happen."""
        if subscription.most and runs:
            self._noting.take_back(queue, subscription, runs)

    def advance(self, queue: Queue, subscription: Subscription) -> float:
        """Bring back what is due; seconds until the next will be. What has expired is set aside.

        Of what was looked at already: see `look`.
        """
        seconds = math.inf
        with queue.lock:
            is_any = False
            if subscription.later:
                passed_us = clock_us(self._env)
                is_any = subscription.bring_back(passed_us)
                if subscription.later:
                    seconds = (subscription.later[0][0] - passed_us) / 1e6
                    self._delayed.add((queue, subscription))
            if queue.config.properties.is_clocked:
                now_us, passed_us = self._env.now_us(), clock_us(self._env)
                is_any |= subscription.order.advance(now_us, passed_us, queue.end_position)
                seconds = min(seconds, subscription.order.due_in(now_us, passed_us))
            if is_any:
                queue.wake()
            return min(seconds, subscription.start_due_in())

    def look(self, queue: Queue, subscription: Subscription) -> float:
        """At headers and times: what is due is available, what has expired is set aside.

        Seconds until the next will be due.
        """
        if subscription.is_selected:
            if subscription.later:  # what comes again has to be looked at before others are due
                with queue.lock:
                    if subscription.bring_back(clock_us(self._env)):
                        queue.wake()
            catch_up(self._env, self._reader, queue, subscription)
        elif not subscription.later and subscription.pace is None:
            return math.inf
        return self.advance(queue, subscription)

    def take_scheduled(
        self, asking: DeliveryRequest, position: int, *, to_change: bool
    ) -> DeliveryRuns:
        """The message at the position, now in flight, if it is not due yet.

        Its group is the taker's then, unless it is `to_change` it.
        """
        queue, subscription, taker = asking.queue, asking.subscription, asking.taker
        group = self._group(queue, position)
        holder = None if to_change else taker
        is_known = False
        while not is_known:
            self.look(queue, subscription)
            with queue.lock:
                queue.check_there(subscription)
                is_known = not subscription.order.unknown
                if (
                    is_known  # else its group may be in flight
                    and (not subscription.is_guarded or subscription.admits(taker))
                    and subscription.take_scheduled(position, group, holder)
                ):
                    asking.runs += ((position, position + 1, subscription.deliveries(position)),)
        if asking.runs:
            self.hand_out(asking)
        return asking.runs

    def _group(self, queue: Queue, position: int) -> int:
        """The number of the message's group; 0: it has none, or is not there."""
        for _, part in self.parts(queue, position, position + 1):
            return group_of(part)
        return 0

    def scheduled(self, queue: Queue, subscription: Subscription, most: int) -> list[Delivered]:
        """Return the messages that are due next, in that order; nothing is taken."""
        self.look(queue, subscription)
        with queue.lock:
            positions = subscription.order.next_scheduled(most)
        return [part for start in positions for _, part in self.parts(queue, start, start + 1)]

    def bring_back(self) -> None:
        """Make rejected messages that are due available again, in all queues."""
        for delayed in list(self._delayed):
            queue, subscription = delayed
            self.advance(queue, subscription)
            with queue.lock:
                if queue.dropped or subscription.removed or not subscription.later:
                    self._delayed.discard(delayed)

        now = self._env.monotonic() if self._awaited else 0.0
        for (queue, subscription), due in list(self._awaited.items()):
            if due <= now:
                self._awaited.pop((queue, subscription), None)
                self.advance(queue, subscription)
                with queue.lock:
                    queue.wake()

    def await_due(self, queue: Queue, subscription: Subscription) -> bool:
        """Have `bring_back` wake who waits without a thread, when the next message is due.

        By its time, or by a limit. True: that is sooner than all that is awaited so far.
        """
        if subscription.is_plain:
            return False
        due = self.advance(queue, subscription)
        if due == math.inf:
            return False
        is_next = due < self.next_due
        self._awaited[queue, subscription] = self._env.monotonic() + due
        return is_next

    @property
    def next_due(self) -> float:
        """Seconds until somebody is to be told so; infinite: nobody is."""
        due = min(list(self._awaited.values()), default=math.inf)
        return due - self._env.monotonic() if due < math.inf else due

    def fail(self, runs: Sequence[InFlightRange], reason: str | None = None) -> set[Subscription]:
        """These are given back, as they failed: the subscriptions of which that is noted (U7).

        `reason`: why, for what becomes a dead letter by that.
        """
        failures: list[Failure] = []
        noted: set[Subscription] = set()
        for _, _, start, end, queue, subscription, *_ in runs:
            with queue.lock:
                if reason is not None:
                    subscription.note_reason(start, end, reason)
                if subscription.retry is not None:
                    noted.add(subscription)
                    failures += subscription.failing(start, end, subscription.retry)
                    self._delayed.add((queue, subscription))
        if failures:
            self._noting.fail(failures)
        return noted

    def reject(
        self,
        queue: Queue,
        subscription: Subscription,
        position: int,
        reason: str,
        delay: float | Retry | None,
    ) -> None:
        """Make a message in flight available again after the delay, or note that it is spent."""
        policy = subscription.retry if delay is None else delay
        with queue.lock:
            subscription.note_reason(position, position + 1, reason)
            failures: list[Failure] = []
            noted = bool(policy) or subscription.retry is not None
            if noted:
                failures = subscription.failing(position, position + 1, policy or 0.0)
        if failures:
            self._noting.fail(failures)
        with queue.lock:
            subscription.give_back(position, position + 1, counted=True, noted=noted)
            if subscription.later:
                self._delayed.add((queue, subscription))
            queue.wake()

    def _take(self, asking: DeliveryRequest, limit: int, timeout: float) -> bool:
        """Take of the messages that are looked at already; True: there may be more."""
        queue, subscription, runs = asking.queue, asking.subscription, asking.runs
        most_runs = HANDOUT_RUNS if subscription.most else limit

        def ready() -> bool:
            """Take what is there; whether there is nothing to wait for."""
            left = 0 if queue.is_shut or subscription.removed else limit
            while left and len(runs) < most_runs:
                if not queue.take(subscription, left, asking.taker, runs):
                    break
                left -= runs[-1][1] - runs[-1][0]
            return bool(runs) or not left or subscription.is_behind(queue.end_position)

        with queue.lock:
            is_ready = ready() or (timeout > 0 and self._wait(asking, timeout, ready))
            queue.check_there(subscription)
        return is_ready

    def _wait(self, asking: DeliveryRequest, timeout: float, ready: Callable[[], bool]) -> bool:
        """Under the queue's lock: until `ready`, or there may be another time to wait for."""
        queue, subscription, wanted = asking.queue, asking.subscription, asking.wanted
        pace = subscription.pace
        changes = 0 if pace is None else pace.changes

        def is_over() -> bool:
            return not wanted() or ready() or (pace is not None and pace.changes != changes)

        due = subscription.start_due_in()
        return queue.wait(min(timeout, due), is_over) or due < timeout

    def hold(self, asking: DeliveryRequest, own: int, timeout: float) -> bool:
        """Let nobody take of the subscription but who has: the asking one is to move it (U6).

        Waits up to `timeout` seconds, while it is wanted, for others to end what they have of it;
        `own` messages are the asking one's. Raises QueueInUse; then the asking one calls `let_go`,
        if it has not held the subscription before.
        """
        queue, subscription, seeker = asking.queue, asking.subscription, asking.taker

        def ready() -> bool:
            if queue.is_shut or subscription.removed or not asking.wanted():
                return True
            if subscription.seeker is None:
                subscription.guard(seeker)
            return subscription.seeker is seeker and subscription.delivered <= own

        with queue.lock:
            is_ready = ready() or (timeout > 0 and queue.wait(timeout, ready))
            queue.check_there(subscription)
            if not is_ready:
                raise QueueInUse(
                    f"{subscription.delivered - own} messages of {queue.name}/{subscription.name} "
                    "are in flight in other transactions, or another one moves it: end them first "
                    "(the prepared ones too, see store.prepared), or wait for them with timeout="
                )
        return True

    def let_go(self, queue: Queue, subscription: Subscription, seeker: object) -> None:
        """It is moved, or is not to be moved after all; may be called again."""
        with queue.lock:
            if subscription.seeker is seeker:
                subscription.guard(None)
                queue.wake()

    def deliver(
        self, queue: Queue, subscription: Subscription, runs: DeliveryRuns
    ) -> list[Delivered]:
        """The messages at positions in flight."""
        parts: list[Delivered] = []
        for start, end, deliveries in runs:
            while start < end:
                stop, failed = end, None
                with queue.lock:
                    if subscription.most:
                        stop, failed = subscription.failed_run(start, end)
                    stop, missing = subscription.order.missing(start, stop)
                    pointers = queue.deliverable(subscription, start, stop)
                for pointer in pointers:
                    found = self.fetch(queue, pointer, deliveries)
                    if failed is not None or missing is not None:
                        found = [p._replace(failed_count=failed, missing=missing) for p in found]
                    parts += found
                start = pointers[-1].end_position if pointers else stop
        return parts

    def parts(self, queue: Queue, start: int, end: int) -> Iterator[tuple[int, Delivered]]:
        """The messages of [start, end) that are kept, and the position where each part begins."""
        while pointers := queue.kept(start, end):
            for pointer in pointers:
                start = pointer.position
                for part in self.fetch(queue, pointer, 1):
                    yield start, part
                    start += part.stop - part.start
            start = pointers[-1].end_position

    def fetch(
        self, queue: Queue, pointer: Pointer, deliveries: int, kept: LookedUp | None = None
    ) -> list[Delivered]:
        """One pointer's messages; a block that is not there is looked up anew, by `kept`.

        A checkpoint may have moved it, and the next one again; or it was released: then there is
        nothing. The same place as before is damage.
        """
        try:
            found = self._reader.deliver(pointer, deliveries)
            if pointer.ref.kind == LTDS and isinstance(found[0].block, StreamedBlock):
                found[0].block.read_chunk = partial(self._chunk, queue)
            if queue.schema is not None:
                return [widened(part, queue.schema) for part in found]
            return found
        except (BlockMoved, StoreError) as moved:
            start, end = pointer.position, pointer.end_position
            again = (kept or queue.kept)(start, end)
            if [p.ref for p in again] == [pointer.ref]:
                where = f"queue {queue.name!r}, positions {start} to {end}"
                if not isinstance(moved, (BlockMoved, StoreCorrupt)):  # it may be there
                    raise type(moved)(f"{where}: {moved}") from moved
                raise StoreCorrupt(
                    f"{where}: {moved}; run verify, and restore the store from a copy"
                ) from moved
            return [part for p in again for part in self.fetch(queue, p, deliveries, kept)]

    def _chunk(self, queue: Queue, stream: Stream, number: int) -> Bytes:
        """See `BlockReader.chunk`: damage is told with the queue."""
        try:
            return self._reader.chunk(stream, number)
        except StoreCorrupt as error:
            raise StoreCorrupt(f"queue {queue.name!r}: {error}") from error

    def give_back(
        self, queue: Queue, subscription: Subscription, runs: DeliveryRuns, kept: int = 0
    ) -> None:
        """Positions that were taken and reached no reader are available again, and in no run.

        `kept`: the first runs stay as they are.
        """
        while len(runs) > kept:
            with queue.lock:
                subscription.give_back(*runs[-1][:2], counted=False)
                del runs[-1]  # no call in between
                queue.wake()


def widened(part: Delivered, words: str) -> Delivered:
    """The rows with the columns that the queue has by now. Raises StoreCorrupt."""
    block = part.block
    if not isinstance(block, RowBlock):
        raise StoreCorrupt("there are bytes where the queue has rows")
    return part if block.words == words else part._replace(block=block.widened(words))


def moving(queue: Queue, subscription: Subscription) -> TransactionError:
    """For who reads what it is to move."""
    source = f"{queue.name}/{subscription.name}" if subscription.name else queue.name
    return TransactionError(
        f"this transaction moves {source!r}: what is there then can be got once it has committed"
    )

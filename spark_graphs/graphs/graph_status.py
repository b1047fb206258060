"""How it is with a graph: from its runners' numbers and from the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from quire.env import OsEnv
from quire.errors import PositionLost, QueueNotFound
from quire.graphs import see_state
from quire.spark_graphs import connection
from quire.spark_graphs.limits import LOOK_SECONDS

from .status import InputStatus, Phase, QueueStatus, RunStatus, StepStatus
from .steps.step_life import StepLife

if TYPE_CHECKING:
    from quire.interface.store import Store
    from quire.reports.info import QueueInfo


def look(
    name: str, path: str, runners: Mapping[str, StepLife], merge_errors: Mapping[str, str]
) -> RunStatus:
    """The status of a run of the graph of that name. `merge_errors`: by state."""
    return connection.call(path, lambda store: _look(store, name, path, runners, merge_errors))


def _look(
    store: Store,
    graph: str,
    path: str,
    runners: Mapping[str, StepLife],
    merge_errors: Mapping[str, str],
) -> RunStatus:
    steps = {name: runner.step for name, runner in runners.items()}
    names = dict.fromkeys(queue for step in steps.values() for queue in step.queues)
    queues = {info.name: info for info in _there(store, names)}
    now_us = OsEnv().now_us()
    statuses = {
        name: _step(store, runner, queues, now_us, merge_errors) for name, runner in runners.items()
    }
    full = {queue for step in statuses.values() for queue in step.full}
    return RunStatus(
        graph,
        path,
        now_us,
        statuses,
        {name: _queue(info, name in full) for name, info in queues.items()},
    )


def _there(store: Store, names: Collection[str]) -> Sequence[QueueInfo]:
    """Return those of the queues that nobody has dropped, or renamed."""
    try:
        return store.queues(list(names))
    except QueueNotFound:
        return [info for info in store.queues() if info.name in names]


def _step(
    store: Store,
    runner: StepLife,
    queues: Mapping[str, QueueInfo],
    now_us: int,
    merge_errors: Mapping[str, str],
) -> StepStatus:
    step, tally = runner.step, runner.tally
    by_queue: dict[str, list[str]] = {}
    for queue, subscription in step.sources(runner.graph):
        by_queue.setdefault(queue, []).append(subscription)
    rate_in, rate_out = tally.rates()
    # In this order: a batch that is committed in between is seen in the inputs too.
    phase, awaited = tally.phase, tally.awaited
    return StepStatus(
        name=step.name,
        kind=step.kind,
        phase=phase,
        inputs=tuple(
            _input(store, queues[queue], names, now_us)
            for queue, names in by_queue.items()
            if queue in queues
        ),
        writes=step.writes,
        dead=step.dead,
        rate_in=rate_in,
        rate_out=rate_out,
        awaits={} if awaited is None or phase is not Phase.ALIGNING else dict(awaited.lacking),
        states=tuple(
            replace(sight, merge_error=merge_errors.get(each.stored))
            for each in step.states
            if (sight := see_state(store, each.stored)) is not None
        ),
        **tally.numbers(),
    )


def _input(store: Store, info: QueueInfo, names: Sequence[str], now_us: int) -> InputStatus:
    found = {each.name: each.position for each in store.subscriptions(info.name)}
    end = info.end_position
    position = min([end, *(found.get(name, info.first_position) for name in names)])
    mean = info.used_bytes / info.messages if info.messages else 0.0
    oldest_us = _time_at(store, info.name, position) if position < end else None
    return InputStatus(
        info.name,
        names[0],
        position,
        end,
        lag_bytes=int((end - position) * mean),
        lag_seconds=0.0 if oldest_us is None else max(0.0, (now_us - oldest_us) / 1e6),
    )


def _time_at(store: Store, queue: str, position: int) -> int | None:
    """Return when the message, or one of its block, was committed; no payload is read."""
    try:
        lease = store.integration.lease(queue, position, position + 1, seconds=LOOK_SECONDS)
    except (PositionLost, QueueNotFound):
        return None
    store.integration.end_lease(lease.lease_id)
    return lease.pieces[0].time_us if lease.pieces else None


def _queue(info: QueueInfo, is_full: bool) -> QueueStatus:
    return QueueStatus(
        info.name,
        info.messages,
        info.used_bytes,
        info.capacity_bytes,
        info.subscriptions,
        is_full,
    )

"""The calls of a store for asyncio by subject: those of the interface as coroutines, one a line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from quire.calls.documented import documented_by
from quire.interface.integration import Integration
from quire.interface.listening import Course, ListenerRequest, add_listener
from quire.interface.namespaces import Admin, Cron, Delayed, Listeners, Prepared, States
from quire.interface.namespaces.listeners import ListenedEvent
from quire.limits import NOTICE_IDS
from quire.reports.info import Notice
from quire.selectors.template import SelectorOrTemplate

from .coroutines import Beginning, awaited, awaited_put
from .listener import AsyncListener
from .waiting_lines import Lines

R = TypeVar("R")


class AsyncNamespace:
    """A subject of an `AsyncStore`."""

    def __init__(self, inner: Any, lines: Lines) -> None:
        self._inner = inner
        self._lines = lines
        self._pool = lines.pool

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._inner!r}>"

    async def _call(self, call: Callable[[Any], R], *, in_thread: bool = False) -> R:
        return await self._pool.run(partial(call, self._inner), in_thread=in_thread)


class AsyncAdmin(AsyncNamespace):
    """`Admin` for asyncio."""

    create_queues = awaited(Admin.create_queues)
    queue_names = awaited(Admin.queue_names)
    rename_queue = awaited(Admin.rename_queue)
    purge = awaited(Admin.purge)
    redrive = awaited(Admin.redrive)
    move = awaited_put(Admin.move)
    create_alias = awaited(Admin.create_alias)
    drop_alias = awaited(Admin.drop_alias)
    aliases = awaited(Admin.aliases)
    switch = awaited(Admin.switch)
    catalog = awaited(Admin.catalog)
    transactions = awaited(Admin.transactions)
    transaction = awaited(Admin.transaction)
    abort = awaited(Admin.abort)
    shutdown = awaited(Admin.shutdown)
    checkpoint = awaited(Admin.checkpoint)
    compact = awaited(Admin.compact)
    verify = awaited(Admin.verify)
    position_at = awaited(Admin.position_at)
    explain = awaited(Admin.explain)
    queue_records = awaited(Admin.queue_records)
    set_archive = awaited(Admin.set_archive)
    archive = awaited(Admin.archive)
    stop_archive = awaited(Admin.stop_archive)


class AsyncCron(AsyncNamespace):
    """`Cron` for asyncio."""

    create = awaited(Cron.create)
    alter = awaited(Cron.alter)
    drop = awaited(Cron.drop)
    list = awaited(Cron.list)


class AsyncDelayed(AsyncNamespace):
    """`Delayed` for asyncio."""

    list = awaited(Delayed.list)
    cancel = awaited(Delayed.cancel)
    reschedule = awaited(Delayed.reschedule)


class AsyncStates(AsyncNamespace):
    """`States` for asyncio."""

    get = awaited(States.get)
    items = awaited(States.items)
    names = awaited(States.names)
    drop = awaited(States.drop)


class AsyncPrepared(AsyncNamespace):
    """`Prepared` for asyncio."""

    list = awaited(Prepared.list)
    commit = awaited(Prepared.commit)
    rollback = awaited(Prepared.rollback)


@documented_by(Listeners)
class AsyncListeners(AsyncNamespace):
    """`Listeners` for asyncio."""

    def add(
        self,
        source: str,
        callback: Callable[[Notice], object] | None = None,
        *,
        group: int = 0,
        where: SelectorOrTemplate | None = None,
        on: ListenedEvent = "put",
        name: str | None = None,
        backlog: bool = True,
        max_ids: int = NOTICE_IDS,
    ) -> Beginning[AsyncListener]:
        request = ListenerRequest(source, group, where, on, name, backlog, max_ids).checked()
        lines = self._lines
        store: Any = lines.store

        async def begin() -> AsyncListener:
            course, calls = Course(request), None
            if callback is None:
                await self._pool.run(partial(course.begin, store))
            else:
                add = partial(add_listener, store, request, callback)
                calls = await self._pool.run(add, lambda made: made.close())
            return AsyncListener(lines, course, calls)

        return Beginning(begin)

    poll_notices = awaited(Listeners.poll_notices)
    list = awaited(Listeners.list)
    remove = awaited(Listeners.remove)


@documented_by(Integration)
class AsyncIntegration(AsyncNamespace):
    """`Integration` for asyncio, without `when_ready`: a task that waits takes no thread."""

    @property
    def store_id(self) -> int:
        number: int = self._inner.store_id
        return number

    positions = awaited(Integration.positions)
    positions_many = awaited(Integration.positions_many)
    subscribe_many = awaited(Integration.subscribe_many)
    put_priorities = awaited(Integration.put_priorities)
    ledger = awaited(Integration.ledger)
    ledger_many = awaited(Integration.ledger_many)
    lease = awaited(Integration.lease)
    lease_many = awaited(Integration.lease_many)
    lease_names = awaited(Integration.lease_names)
    lease_state = awaited(Integration.lease_state)
    renew_lease = awaited(Integration.renew_lease)
    end_lease = awaited(Integration.end_lease)
    read_places = awaited(Integration.read_places)
    file_size = awaited(Integration.file_size)
    write_fragment = awaited(Integration.write_fragment)
    read_fragment = awaited(Integration.read_fragment)
    remove_fragments = awaited(Integration.remove_fragments)
    ship = awaited(Integration.ship)
    archive_boundary = awaited(Integration.archive_boundary)

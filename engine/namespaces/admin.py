"""The handlers of `store.admin` at the owner of a store: see `quire.interface.namespaces.admin`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from quire.arguments import (
    check_archive_full,
    check_archive_keep,
    check_archive_limit,
    check_archive_url,
    check_flag,
    check_grace,
    check_limit,
    check_message_id,
    check_name,
    check_passed,
    check_queues,
    check_source,
    check_switch,
    check_transaction_id,
    check_type,
)
from quire.calls.signal_safety import allow_reentry
from quire.definitions.queue_types import type_named
from quire.engine.checkpoints.checkpoint import Checkpointer
from quire.engine.checkpoints.compaction import compact
from quire.engine.checkpoints.store_files import Opened
from quire.engine.commits.definitions import Definitions
from quire.engine.inspection.explaining import Explainer
from quire.engine.inspection.status import listing
from quire.engine.inspection.verify import verify
from quire.engine.lookup.choice import choice_of
from quire.engine.pages.data_files import file_for
from quire.engine.queues.queue import Queue
from quire.engine.reading.position_search import position_at
from quire.engine.state.catalog import STATE, TYPES
from quire.engine.transactions.context import Context
from quire.engine.upkeep.overflow_handler import dropped
from quire.engine.upkeep.purging import purge
from quire.engine.upkeep.started_types import StartedTypes
from quire.errors import InvalidArgument, StoreFailed
from quire.interface.starts import Time, check_time
from quire.moments import Duration
from quire.reports.explanation import Explanation
from quire.reports.info import (
    ArchiveInfo,
    CatalogItem,
    CompactReport,
    QueueInfo,
    QueueRecord,
    Report,
    TransactionInfo,
)
from quire.sizes import Size

if TYPE_CHECKING:
    from quire.engine.upkeep.shipping import Shipping
    from quire.interface.lookup import Where

_LISTED: Final = [name for name in TYPES if name != STATE]


class AdminHandlers:
    """A handler for each row of `Admin`."""

    def __init__(
        self,
        opened: Opened,
        context: Context,
        definitions: Definitions,
        types: StartedTypes,
        checkpointer: Checkpointer,
        shipping: Callable[[], Shipping],
        maintenance_error: Callable[[], str | None],
    ) -> None:
        self._opened = opened
        self._context = context
        self._state = context.state
        self._registry = context.registry
        self._definitions = definitions
        self._types = types
        self._checkpointer = checkpointer
        self._shipping = shipping
        self._maintenance_error = maintenance_error

    def create_queues(self, queues: Iterable[str | Mapping[str, Any]]) -> list[QueueInfo]:
        files = len(self._opened.places.managers)
        checked = check_queues(queues, files)
        for index, queue in enumerate(checked):
            if queue.data_file is None:
                checked[index] = queue._replace(data_file=file_for(queue.name, files))
            elif type_named(queue.properties.type).is_volatile:
                raise InvalidArgument(
                    f"queue {queue.name!r}: data_file {queue.data_file} would have no effect: its "
                    "messages are in memory; leave it out"
                )
        if checked:
            self._definitions.create(checked)
            allow_reentry(self._types.start, [self._state.queue(queue.name) for queue in checked])
        return [self._info(self._state.queue(queue.name)) for queue in checked]

    def _info(self, queue: Queue) -> QueueInfo:
        return queue.info(dropped(self._context, queue))

    def queue_names(self, prefix: str) -> list[str]:
        if not isinstance(prefix, str):
            raise InvalidArgument(f"prefix {prefix!r:.100}: give what names begin with, or nothing")
        names = (queue.name for queue in self._state.by_name())
        return [name for name in names if name.startswith(prefix)]

    def rename_queue(self, old: str, new: str) -> QueueInfo:
        check_name(new, "queue")
        return self._info(self._definitions.rename(check_name(old, "queue"), new))

    def purge(self, queue: str, subscription: str | None, where: Where | None) -> int:
        found, reader = self._state.queue(queue, to_end=True), None
        if subscription is not None:
            reader = found.subscription(check_name(subscription, "subscription"))
        choice = choice_of(found, where)
        return allow_reentry(purge, self._context, self._definitions, found, reader, choice)

    def create_alias(self, name: str, queue: str, replace: bool) -> None:
        check_name(name, "alias")
        self._definitions.create_alias(
            name, check_name(queue, "queue"), check_flag("replace", replace)
        )

    def drop_alias(self, name: str) -> None:
        self._definitions.drop_alias(check_name(name, "alias"))

    def aliases(self) -> dict[str, str]:
        return self._definitions.aliases()

    def switch(self, puts: bool | None, gets: bool | None) -> dict[str, bool]:
        checked = {"puts": check_switch("puts", puts), "gets": check_switch("gets", gets)}
        changes = {name: value for name, value in checked.items() if value is not None}
        if not changes:
            return {"puts": self._state.switches.puts, "gets": self._state.switches.gets}
        return dict(self._definitions.switch(changes))

    def catalog(self, type: str | None) -> list[CatalogItem]:
        if check_type(type) is not None and type not in TYPES:
            raise InvalidArgument(f"type {type!r}: give one of {', '.join(TYPES)}, or None")
        return [
            CatalogItem(name, key, entry.version, dict(entry.body))
            for name in (_LISTED if type is None else [type])
            for described in (self._state.durable, self._state.temporary)
            for key, entry in sorted(described.catalog[name].items())
        ]

    def transactions(self) -> list[TransactionInfo]:
        return self._registry.infos()

    def transaction(self, transaction_id: int) -> TransactionInfo:
        return self._registry.info(check_transaction_id(transaction_id))

    def abort(self, transaction_id: int) -> None:
        self._registry.abort(check_transaction_id(transaction_id))

    def shutdown(self, grace: Duration) -> None:
        self._registry.shut_down(check_grace(grace))

    def checkpoint(self) -> None:
        if self._checkpointer.store_failed:
            raise StoreFailed("the store has failed: close it and open it again to recover")
        self._checkpointer.run()

    def compact(self) -> CompactReport:
        return compact(self._opened, self._context.sequencer, self._checkpointer)

    def verify(self, contents: bool) -> Report:
        check_flag("contents", contents)
        return verify(self._opened, self._context, self._checkpointer, contents=contents)

    def position_at(self, name: str, time: Time) -> int:
        queue, time_us = self._state.queue(name), check_time(time)
        return position_at(self._context.delivery, queue, time_us)

    def explain(self, source: str, id: int | None) -> Explanation:
        checked = None if id is None else check_message_id(id)
        return Explainer(
            self._context,
            check_source(source),
            has_failed=self._checkpointer.store_failed,
            maintenance_error=self._maintenance_error,
        ).explain(checked)

    def queue_records(self, name: str, start: int, limit: int) -> list[QueueRecord]:
        return listing(self._state.queue(name), check_passed(start), check_limit(limit))

    def set_archive(self, url: str, limit: Size, full: str, keep: Duration | None) -> ArchiveInfo:
        return self._shipping().set(
            check_archive_url(url), check_archive_limit(limit), check_archive_full(full),
            check_archive_keep(keep),
        )  # fmt: skip

    def archive(self) -> ArchiveInfo | None:
        return self._shipping().info()

    def stop_archive(self, forget: bool) -> None:
        self._shipping().stop(forget=check_flag("forget", forget))

"""Looking after the store of this process: see `quire.interface.namespaces.admin`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from quire.arguments import (
    check_flag,
    check_limit,
    check_name,
    check_passed,
    check_queues,
    check_switch,
    check_transaction_id,
    check_type,
)
from quire.calls.documented import documented_by
from quire.calls.uninterrupted import look, nested
from quire.definitions.queue_types import type_named
from quire.engine.finding.choice import choice_of
from quire.engine.inspection.queue_listing import listing
from quire.engine.inspection.verify import verify
from quire.engine.opening import open_call
from quire.engine.pages.data_files import file_for
from quire.engine.reading.position_search import position_at
from quire.engine.state.catalog import STATE, TYPES
from quire.engine.upkeep.purging import purge
from quire.errors import InvalidArgument, StoreFailed
from quire.interface.namespaces import Admin
from quire.interface.single_calls import AdminCalls
from quire.interface.starts import Time, check_time
from quire.reports.info import CatalogItem, QueueInfo, QueueRecord, Report, TransactionInfo

from .namespace import EmbeddedNamespace

if TYPE_CHECKING:
    from quire.interface.finding import Where

_LISTED: Final = [name for name in TYPES if name != STATE]


@documented_by(Admin)
class EmbeddedAdmin(EmbeddedNamespace, AdminCalls):
    """Of an `EmbeddedStore`."""

    @open_call
    def create_queues(self, queues: Iterable[str | Mapping[str, Any]]) -> list[QueueInfo]:
        state = self._state()
        files = len(self._of._opened.places.managers)
        given = check_queues(queues, files)
        for index, queue in enumerate(given):
            if queue.data_file is None:
                given[index] = queue._replace(data_file=file_for(queue.name, files))
            elif type_named(queue.properties.type).is_volatile:
                raise InvalidArgument(
                    f"queue {queue.name!r}: data_file {queue.data_file} would have no effect: its "
                    "messages are in memory; leave it out"
                )
        if given:
            self._of._definitions.create(given)
            nested(self._of._types.start, [state.queue(queue.name) for queue in given])
        return [self._of._info(state.queue(queue.name)) for queue in given]

    @open_call
    def queue_names(self, prefix: str = "") -> list[str]:
        if not isinstance(prefix, str):
            raise InvalidArgument(f"prefix {prefix!r:.100}: give what names begin with, or nothing")
        names = (queue.name for queue in self._state().by_name())
        return [name for name in names if name.startswith(prefix)]

    @open_call
    def rename_queue(self, old: str, new: str) -> QueueInfo:
        check_name(new, "queue")
        return self._of._info(self._of._definitions.rename(check_name(old, "queue"), new))

    @open_call
    def purge(
        self, queue: str, subscription: str | None = None, *, where: Where | None = None
    ) -> int:
        found, reader = self._state().queue(queue, to_end=True), None
        if subscription is not None:
            reader = found.subscription(check_name(subscription, "subscription"))
        choice = choice_of(found, where)
        return nested(purge, self._of._context, self._of._definitions, found, reader, choice)

    @open_call
    def create_alias(self, name: str, queue: str, replace: bool = False) -> None:
        check_name(name, "alias")
        self._of._definitions.create_alias(
            name, check_name(queue, "queue"), check_flag("replace", replace)
        )

    @open_call
    def drop_alias(self, name: str) -> None:
        self._of._definitions.drop_alias(check_name(name, "alias"))

    @open_call
    def aliases(self) -> dict[str, str]:
        return self._of._definitions.aliases()

    @open_call
    def switch(self, puts: bool | None = None, gets: bool | None = None) -> dict[str, bool]:
        given = {"puts": check_switch("puts", puts), "gets": check_switch("gets", gets)}
        changes = {name: value for name, value in given.items() if value is not None}
        if not changes:
            return dict(self._of._context.state.switches._asdict())
        return dict(self._of._definitions.switch(changes))

    @open_call
    def catalog(self, type: str | None = None) -> list[CatalogItem]:
        state = self._state()
        if check_type(type) is not None and type not in TYPES:
            raise InvalidArgument(f"type {type!r}: give one of {', '.join(TYPES)}, or None")
        return [
            CatalogItem(name, key, entry.version, dict(entry.body))
            for name in (_LISTED if type is None else [type])
            for described in (state.durable, state.temporary)
            for key, entry in sorted(described.catalog[name].items())
        ]

    @open_call
    def transactions(self) -> list[TransactionInfo]:
        return self._of._context.registry.infos()

    @open_call
    def transaction(self, transaction_id: int) -> TransactionInfo:
        return self._of._context.registry.info(check_transaction_id(transaction_id))

    @open_call
    def abort(self, transaction_id: int) -> None:
        self._of._context.registry.abort(check_transaction_id(transaction_id))

    @open_call
    def checkpoint(self) -> None:
        if self._of.failed:
            raise StoreFailed("the store has failed: close it and open it again to recover")
        self._of._checkpointer.run()

    @look
    def verify(self, *, contents: bool = False) -> Report:
        check_flag("contents", contents)
        self._state()
        store = self._of
        return verify(store._opened, store._context, store._checkpointer, contents=contents)

    @open_call
    def position_at(self, name: str, time: Time) -> int:
        queue, time_us = self._state().queue(name), check_time(time)
        return position_at(self._of._context.delivery, queue, time_us)

    @open_call
    def queue_records(self, name: str, start: int = 0, limit: int = 10_000) -> list[QueueRecord]:
        return listing(self._state().queue(name), check_passed(start), check_limit(limit))

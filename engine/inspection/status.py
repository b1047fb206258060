"""The numbers of an open store, and the records of its queues."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import to_builtins

from quire.engine.checkpoints.store_files import Opened
from quire.engine.pages.io_manager import IoManager
from quire.engine.queues.queue import Queue
from quire.engine.transactions.context import Context
from quire.engine.upkeep.maintenance import Maintenance
from quire.engine.upkeep.overflow_handler import dropped
from quire.reports.info import QueueRecord


def status(opened: Opened, context: Context, maintenance: Maintenance) -> dict[str, Any]:
    """Plain values. Sizes in bytes."""
    kept_back, checkpointer = opened.kept_back, maintenance.checkpointer
    journal, places = context.journal, context.places
    segments = journal.status()
    files = [_sizes(manager, places.page_size) for manager in places.managers]
    return {
        **_queues(context),
        "transactions": [
            {**to_builtins(info), "queues": list(info.queues), "sources": list(info.sources)}
            for info in context.registry.infos()
        ],
        "prepared": [to_builtins(p) for p in context.state.prepared.info(context.env.now_us())],
        "write_buffer_bytes": context.write_buffers.total_bytes,
        "commits": context.sequencer.changes,
        "groups": context.sequencer.groups,
        "groups_by_size": context.sequencer.groups_by_size,
        "times": _times(opened),
        "failed": checkpointer.store_failed,
        "opening": _opening(opened),
        "journal": {
            "end_lsn": journal.end_lsn,
            "durable_end_lsn": journal.durable_end,
            "generation": journal.generation,
            "segments": len(segments.segments),
            "pinned_segments": len(segments.pinned),
            "spare_segments": segments.spares + segments.ready,
            "bytes": segments.bytes,
            "unsynced_bytes": journal.unsynced_bytes,
            "since_checkpoint_bytes": journal.bytes_since(checkpointer.last_lsn),
            "cut": opened.recovered.cut,  # off the journal's end, in words
        },
        "data": {
            "page_size": places.page_size,
            **{name: sum(file[name] for file in files) for name in ("bytes", "free_bytes")},
            "files": files,
        },
        "volatile": {
            "queues": len(context.state.volatile),
            "blocks": len(places.memory),
            "bytes": places.memory.size_bytes,
        },
        "large_transactions": {"files": len(places.ltds), "removable": places.removable},
        "checkpoints": {
            "count": checkpointer.count,
            "last_lsn": checkpointer.last_lsn,
            "last_us": checkpointer.last_us,
            "last_seconds": checkpointer.last_seconds,
            "moved_bytes": checkpointer.moved_bytes,
            "reorganised_bytes": checkpointer.reorganised_bytes,
        },
        "disk": _disk(opened, maintenance),
        "kept_back": {  # for a full disk
            "whole": not journal.lacks_room and kept_back.is_enough,
            "journal_bytes": segments.kept_back_bytes,
            "checkpoint_bytes": kept_back.total_bytes,
        },
        "schedules": [to_builtins(info) for info in maintenance.schedules.infos()],
        "leases": len(maintenance.leases),
        "ledger_entries": len(context.state.ledger),
        "state": context.state.values.sums(),
        "maintenance_error": maintenance.last_error,
    } | _archive(context)


def _queues(context: Context) -> dict[str, Any]:
    """The queues, and the subscriptions; the one of a work queue has no name."""
    queues = context.state.by_name()
    return {
        "queues": [to_builtins(queue.info(dropped(context, queue))) for queue in queues],
        "subscriptions": [
            to_builtins(queue.subscription_info(subscription))
            for queue in queues
            for subscription in queue.readers()
        ],
    }


def _opening(opened: Opened) -> dict[str, Any]:
    return {
        "number": opened.journal.generation >> 32,  # of all that the store has had
        "time_us": opened.opened_us,
        "recovery_seconds": opened.recovery_seconds,
    }


def _times(opened: Opened) -> dict[str, Any]:
    """How long commits and syncs took, of a store that has `timings`."""
    times = opened.times
    if times is None:
        return {}
    return {"commit": times.commit.status(), "sync": times.sync.status()}


def _disk(opened: Opened, maintenance: Maintenance) -> dict[str, Any]:
    """The free space of now, beside the marks; the level is that of the last look."""
    options, watch = opened.options, maintenance.disk
    return {
        "free_bytes": opened.env.free_bytes(opened.layout.path),
        "warn_below_bytes": max(options.warn_below_bytes, options.refuse_below_bytes),
        "refuse_below_bytes": options.refuse_below_bytes,
        "level": "ok" if watch is None else watch.level,
    }


def _archive(context: Context) -> dict[str, Any]:
    """The numbers of the store's archive, if it has one. Times in ISO 8601."""
    unshipped, places = context.places.unshipped, context.places
    position, entry = unshipped.position, unshipped.entry
    if position is None or entry is None:
        return {}
    records = context.sequencer.number - position.number
    lag_us = context.env.now_us() - unshipped.shipped_us if records > 0 else 0
    numbers = {
        "url": entry["url"],
        "since": _as_text(unshipped.since_us),
        "lag_seconds": max(lag_us, 0) / 1e6,
        "lag_records": max(records, 0),
        "lag_bytes": context.journal.bytes_since(position.lsn) if records > 0 else 0,
        "held_bytes": unshipped.held_bytes(places.page_size),
        "base_number": unshipped.base_number,
        "error": unshipped.error,
        "gap_since": _as_text(unshipped.gap_since_us) if unshipped.gap_since_us else None,
        "puts_wait": bool(unshipped.puts_wait),
        "limit": entry["limit"],
        "full": entry["full"],
    }
    return {"archive": numbers}


def _as_text(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="seconds")


def _sizes(manager: IoManager, page_size: int) -> dict[str, int]:
    space = manager.space
    return {"bytes": space.total_pages * page_size, "free_bytes": space.free_pages * page_size}


def listing(queue: Queue, start: int = 0, limit: int | None = None) -> list[QueueRecord]:
    """The queue's records that no checkpoint has sealed, in queue order: so many of them."""
    with queue.lock:  # for no longer than a copy takes
        log, committed = queue.log.copy(), queue.records.tail.copy()
    stop = None if limit is None else start + limit
    return list(log.records(committed.between(0, len(committed))))[start:stop]

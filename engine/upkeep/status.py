"""The numbers that `status` shows."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from quire.engine.checkpoints.checkpoint import Checkpointer
from quire.engine.checkpoints.opened import Opened
from quire.engine.pages.io_manager import IoManager
from quire.engine.reading.lease import Leases
from quire.engine.transactions.context import Context

from .maintenance import Maintenance
from .room import dropped
from .schedules import Schedules


def status(
    opened: Opened,
    context: Context,
    checkpointer: Checkpointer,
    maintenance: Maintenance,
    leases: Leases,
    schedules: Schedules,
) -> dict[str, Any]:
    """Plain values. Sizes in bytes."""
    kept_back = opened.kept_back
    journal, places = context.journal.status(), context.places
    files = [_sizes(manager, places.page_size) for manager in places.managers]
    return {
        "queues": [
            asdict(queue.info(dropped(context, queue))) for queue in context.state.by_name()
        ],
        "transactions": [
            {**asdict(info), "queues": list(info.queues), "sources": list(info.sources)}
            for info in context.registry.infos()
        ],
        "prepared": [asdict(p) for p in context.state.prepared.info(context.env.now_us())],
        "write_buffer_bytes": context.write_buffers.total_bytes,
        "commits": context.sequencer.changes,
        "groups": context.sequencer.groups,
        "journal": {
            "end_lsn": journal.end_lsn,
            "durable_end_lsn": context.journal.durable_end,
            "generation": journal.generation,
            "segments": len(journal.segments),
            "pinned_segments": len(journal.pinned),
            "spare_segments": journal.spares + journal.ready,
            "bytes": journal.bytes,
            "unsynced_bytes": journal.unsynced_bytes,
            "since_checkpoint_bytes": context.journal.bytes_since(checkpointer.last_lsn),
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
            "moved_bytes": checkpointer.moved_bytes,
            "reorganised_bytes": checkpointer.reorganised_bytes,
        },
        "kept_back": {  # for a full disk
            "whole": not context.journal.lacks_room and kept_back.is_enough,
            "journal_bytes": journal.kept_back_bytes,
            "checkpoint_bytes": kept_back.total_bytes,
        },
        "schedules": [asdict(info) for info in schedules.infos()],
        "leases": len(leases),
        "ledger_entries": len(context.state.ledger),
        "state": context.state.values.sums(),
        "maintenance_error": maintenance.last_error,
    }


def _sizes(manager: IoManager, page_size: int) -> dict[str, int]:
    space = manager.space
    return {"bytes": space.total_pages * page_size, "free_bytes": space.free_pages * page_size}

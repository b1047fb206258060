"""The parts of an open store, each made with what it needs: the one place that knows them all."""

from __future__ import annotations

from typing import NamedTuple

from quire.engine.checkpoints.checkpoint import Checkpointer
from quire.engine.commits.adoptions import Adoptions
from quire.engine.commits.buffer_spiller import BufferSpiller
from quire.engine.commits.committer import Committer
from quire.engine.commits.definitions import Definitions
from quire.engine.commits.listening import Listening
from quire.engine.commits.sequencer import Sequencer
from quire.engine.live_state.turns import Turns
from quire.engine.lookup.candidates import Finder
from quire.engine.lookup.message_lookup import MessageLookup
from quire.engine.lookup.waits import MessageWaits
from quire.engine.pages.unshipped_places import ShippedPosition
from quire.engine.reading.fetcher import Fetcher
from quire.engine.reading.lease import Leases
from quire.engine.transactions.context import Context
from quire.engine.transactions.registry import Registry
from quire.engine.upkeep import disk_watch
from quire.engine.upkeep.dead_letters import DeadLetters
from quire.engine.upkeep.maintenance import Maintenance
from quire.engine.upkeep.retention import Retention
from quire.engine.upkeep.schedules import Schedules
from quire.engine.upkeep.temporary import Temporary
from quire.env.interpreter import has_gil
from quire.limits import LIGHT_BLOCK_BYTES
from quire.writebuffer import WriteBuffers

from .checkpoints.store_files import Opened
from .upkeep.overflow_handler import OverflowHandler
from .upkeep.started_types import StartedTypes


class Parts(NamedTuple):
    """The parts of an open store."""

    opened: Opened
    context: Context
    checkpointer: Checkpointer
    leases: Leases
    definitions: Definitions
    temporary: Temporary
    schedules: Schedules
    maintenance: Maintenance
    types: StartedTypes


def compose(opened: Opened) -> Parts:
    """All of them. Nothing is written, and no thread begins.

    Those below have those above do something by calling upwards, in five cases only, the lambdas
    here: those above do it by commits and transactions of their own, and so need those below. Each
    name is looked up when it is called.
    """
    env, options, journal, state = opened.env, opened.options, opened.journal, opened.state
    places, layout = opened.places, opened.layout
    sequencer = Sequencer(
        journal, opened.recovered.number, lambda: checkpointer.relieve(), has_gil=has_gil(),
        timed=None if opened.times is None else opened.times.commit.timed,
    )  # fmt: skip
    places.unshipped.follow(lambda: ShippedPosition(journal.end_lsn, sequencer.number))
    adoptions = Adoptions(env, layout.ltds, opened.store_id, places)
    committer = Committer(opened, sequencer, adoptions, lambda: maintenance.after_commit())
    buffers = WriteBuffers(
        options.write_buffer_bytes,
        options.write_buffer_messages,
        per_queue=options.write_buffer == "per-queue",
    )
    # The blocks of a light transaction, whose heads are not charged, always fit its record.
    inline_limit = committer.inline_limit
    light_bytes = min(buffers.light_bytes, options.large_limit_bytes, inline_limit // 2)
    light_messages = min(
        buffers.light_messages, options.large_limit_messages, inline_limit // LIGHT_BLOCK_BYTES // 2
    )
    delivery = Fetcher(env, opened.reader, committer, state.queues.values())
    registry = Registry()
    context = Context(
        env=env, options=options, store_id=opened.store_id, ltds_directory=layout.ltds,
        journal=journal, state=state, places=places, reader=opened.reader, sequencer=sequencer,
        spiller=BufferSpiller(places, sequencer, lambda: maintenance.after_discard()),
        write_buffers=buffers, adoptions=adoptions, committer=committer,
        delivery=delivery,
        chooser=MessageLookup(env, delivery, Finder(delivery), MessageWaits(lambda: registry)),
        turns=Turns(env, state, delivery),
        listening=Listening(env, state, sequencer, delivery),
        registry=registry,
        transaction_timeout=options.transaction_timeout, light_bytes=light_bytes,
        light_messages=light_messages,
        make_room=lambda queue, full: room.make(queue, full),
        after_reject=lambda queue, subscription: dead_letters.after_reject(queue, subscription),
    )  # fmt: skip
    checkpointer = Checkpointer(opened, sequencer)
    definitions = Definitions(env, state, committer, journal.max_group_bytes)
    dead_letters, retention = DeadLetters(context), Retention(context)
    room = OverflowHandler(context, definitions, retention, dead_letters)
    leases = Leases(env, places, journal)
    temporary = Temporary(env, state, definitions, context.delivery)
    schedules = Schedules(context, definitions)
    watches_disk = options.warn_below_bytes or options.refuse_below_bytes
    disk = disk_watch.DiskWatch(context, layout.path) if watches_disk else None
    maintenance = Maintenance(
        context, checkpointer, leases, temporary, schedules, dead_letters, retention,
        disk, opened.check_place,
    )  # fmt: skip
    return Parts(
        opened, context, checkpointer, leases, definitions, temporary, schedules, maintenance,
        StartedTypes(),
    )  # fmt: skip

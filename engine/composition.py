"""The parts of an open store, each made with what it needs: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from quire.engine.checkpoints.checkpoint import Checkpointer
from quire.engine.checkpoints.opened import Opened
from quire.engine.commits.adoptions import Adoptions
from quire.engine.commits.committer import Committer
from quire.engine.commits.definitions import Definitions
from quire.engine.commits.handouts import Handouts
from quire.engine.commits.names import Names
from quire.engine.commits.overflow import Overflow
from quire.engine.commits.sequencer import Sequencer
from quire.engine.commits.two_phase import TwoPhase
from quire.engine.commits.volatile import Volatile
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.reading.delivery import Delivery
from quire.engine.reading.lease import Leases
from quire.engine.transactions.context import Context
from quire.engine.transactions.registry import Registry
from quire.engine.upkeep.dead_letters import DeadLetters
from quire.engine.upkeep.maintenance import Maintenance
from quire.engine.upkeep.retention import Retention
from quire.engine.upkeep.room import Room
from quire.engine.upkeep.schedules import Schedules
from quire.engine.upkeep.started import StartedTypes
from quire.engine.upkeep.temporary import Temporary
from quire.errors import QueueFull
from quire.memory_env import MemoryEnv
from quire.writebuffer import WriteBuffers


class Parts(NamedTuple):
    """See the module."""

    opened: Opened
    context: Context
    checkpointer: Checkpointer
    leases: Leases
    definitions: Definitions
    names: Names
    temporary: Temporary
    schedules: Schedules
    maintenance: Maintenance
    types: StartedTypes


class Upward(NamedTuple):
    """What those below call, where there is something to do for those above."""

    relieve: Callable[[], None]
    after_commit: Callable[[], None]
    after_discard: Callable[[], None]
    after_reject: Callable[[Queue, Subscription], None]
    make_room: Callable[[Queue, QueueFull], bool]


def compose(opened: Opened) -> Parts:
    """All of them. Nothing is written, and no thread begins."""
    env, journal, state = opened.env, opened.journal, opened.state
    # Those above do it by commits and transactions of their own, and so need those below: each name
    # is looked up when it is called.
    upward = Upward(
        relieve=lambda: checkpointer.run(),
        after_commit=lambda: maintenance.after_commit(),
        after_discard=lambda: maintenance.after_discard(),
        after_reject=lambda queue, subscription: dead_letters.after_reject(queue, subscription),
        make_room=lambda queue, full: room.make(queue, full),
    )
    context = _context(opened, upward)
    checkpointer = Checkpointer(opened, context.sequencer)
    in_memory = isinstance(opened.ownership.env.machine, MemoryEnv)
    definitions = Definitions(
        env, state, context.committer, journal.max_group_bytes, in_memory=in_memory
    )
    dead_letters, retention = DeadLetters(context), Retention(context)
    room = Room(context, definitions, retention)
    leases = Leases(env, opened.places, journal)
    temporary = Temporary(env, state, definitions, context.delivery)
    schedules = Schedules(context, definitions)
    maintenance = Maintenance(
        context, checkpointer, leases, temporary, schedules, dead_letters, retention,
        opened.check_place,
    )  # fmt: skip
    return Parts(
        opened, context, checkpointer, leases, definitions, Names(state, definitions.submit),
        temporary, schedules, maintenance, StartedTypes(),
    )  # fmt: skip


def _context(opened: Opened, upward: Upward) -> Context:
    """What transactions use."""
    env, options, journal, state = opened.env, opened.options, opened.journal, opened.state
    places = opened.places
    sequencer = Sequencer(journal, opened.recovered.number, upward.relieve)
    adoptions = Adoptions(env, opened.layout.ltds, opened.store_id, places)
    committer = Committer(
        state, opened.reader, places, journal, sequencer, adoptions,
        Volatile(env, state, places.memory), options.inline_limit(journal.max_group_bytes),
        upward.after_commit,
    )  # fmt: skip
    buffers = WriteBuffers(
        options.write_buffer_bytes,
        options.write_buffer_messages,
        per_queue=options.write_buffer == "per-queue",
    )
    light_bytes = min(buffers.light_bytes, options.large_limit_bytes, committer.inline_limit // 2)
    return Context(
        env=env, options=options, store_id=opened.store_id, ltds_directory=opened.layout.ltds,
        journal=journal, state=state, places=places, reader=opened.reader, sequencer=sequencer,
        overflow=Overflow(places, sequencer, upward.after_discard), write_buffers=buffers,
        adoptions=adoptions, committer=committer,
        delivery=Delivery(env, opened.reader, Handouts(state, committer), state.queues.values()),
        two_phase=TwoPhase(state, committer), registry=Registry(),
        transaction_timeout=options.transaction_timeout, light_bytes=light_bytes,
        light_messages=min(buffers.light_messages, options.large_limit_messages),
        make_room=upward.make_room, after_reject=upward.after_reject,
    )  # fmt: skip

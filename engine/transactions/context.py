"""The parts of a store that its transactions use."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakSet

from msgspec import Struct, field

from quire.engine.commits.adoptions import Adoptions
from quire.engine.commits.buffer_spiller import BufferSpiller
from quire.engine.commits.committer import Committer
from quire.engine.commits.listening import Listening
from quire.engine.commits.sequencer import Sequencer
from quire.engine.live_state.engine_state import EngineState
from quire.engine.live_state.turns import Turns
from quire.engine.lookup.message_lookup import MessageLookup
from quire.engine.options import Options
from quire.engine.pages.block_places import Places
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.reading.block_reader import BlockReader
from quire.engine.reading.fetcher import Fetcher
from quire.env import Env
from quire.errors import QueueFull
from quire.journal import Journal
from quire.ltds import LtdsWriter, codec_named, new_id
from quire.writebuffer import WriteBuffers

from .registry import Registry


class Context(Struct, frozen=True):
    """The parts of a store that its transactions use. Everything in it is thread-safe.

    A transaction with less than `light_bytes` and `light_messages` need not tell the write buffer.
    """

    env: Env
    options: Options
    store_id: int
    ltds_directory: str
    journal: Journal
    state: EngineState
    places: Places
    reader: BlockReader
    sequencer: Sequencer
    spiller: BufferSpiller
    write_buffers: WriteBuffers
    adoptions: Adoptions
    committer: Committer
    delivery: Fetcher
    chooser: MessageLookup  # of messages by what they are
    turns: Turns  # of the queues that a pattern names
    listening: Listening  # to what is put and read
    registry: Registry
    transaction_timeout: float  # seconds, by default
    light_bytes: int
    light_messages: int
    # What is done where a queue has no room; whether what was refused may be tried again.
    make_room: Callable[[Queue, QueueFull], bool]
    # A message that was rejected is spent; called without a lock of a queue, must not raise.
    after_reject: Callable[[Queue, Subscription], None]
    # The files of messages that are being put as streams.
    streams: WeakSet[LtdsWriter] = field(default_factory=WeakSet)

    def new_file(self, *, streamed: bool = False) -> LtdsWriter:
        """For a large transaction's messages in one queue, or for a streamed message."""
        codec, ltds_id = codec_named(self.options.ltds_compression), new_id(self.env)
        directory = self.ltds_directory
        return LtdsWriter(self.env, directory, self.store_id, ltds_id, codec, streamed=streamed)

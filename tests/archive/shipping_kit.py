"""What tests of the shipper share: a store with an archive, what is in that, and its state."""

from __future__ import annotations

from collections.abc import Iterable

from quire.archive.entry_reading import ShippedRecord, heads, records
from quire.archive.object_reading import ObjectReading
from quire.archive.objects import Objects
from quire.archive.shipper import Shipper
from quire.engine import EmbeddedStore as Store
from quire.engine.records import format
from quire.engine.records.commit_record import unpack
from quire.engine.records.local_tail import placed, shared
from quire.engine.state import state_hash
from quire.engine.state.durable_state import DurableState
from quire.engine.state.fold import Fold, decode
from quire.journal import KIND_GENERATION, Geometry, JournalFinding, scan
from quire.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES
from quire.testing import SimEnv
from tests.engine.alone import Alone

STEPS = 10_000
URL = "memory:"


def ship_all(shipper: Shipper) -> None:
    """Step until nothing is left to ship; an error of the archive fails the test."""
    for _ in range(STEPS):
        pause = shipper.step()
        assert not shipper.error, shipper.error
        if pause:
            return
    raise AssertionError("the shipper does not end")


def shipped(objects: Objects) -> list[ShippedRecord]:
    """All records of the archive, read back."""
    read = ObjectReading(objects, None)
    return list(records(read, heads(objects, read)))


def journal_records(env: SimEnv, store: Store) -> list[bytes]:
    """The shared parts of all records in the store's journal, as far as it goes back."""
    settings = store._opened.settings
    geometry = Geometry(
        store.integration.store_id, settings["segment_bytes"], settings["page_size"]
    )
    found = []
    for group in scan(env, f"{store.path}/journal", geometry):
        assert not isinstance(group, JournalFinding), group
        for record in group.records():
            if record.kind != KIND_GENERATION:
                length = RECORD_HEADER_BYTES + len(record.body)
                head = RECORD_HEADER.pack(length, record.kind, record.flags, record.sequence)
                found.append(shared(head + record.body))
    return found


def folded_hash(found: Iterable[ShippedRecord]) -> str:
    """The hash of the state that the records give, from the first one on."""
    state = DurableState()

    def fault(where: str, text: str) -> None:
        raise AssertionError(f"{where}: {text}")

    fold = Fold(state, Alone(fault))
    for number, _, record, attachment in found:
        _, kind, flags, sequence = RECORD_HEADER.unpack_from(record)
        whole, where = record, f"record {number}"
        if attachment:
            assert flags & format.SECTIONS
            parts = unpack(memoryview(record)[RECORD_HEADER_BYTES:], where).parts
            count = sum(part.kind == format.DATA for part in parts)
            whole = placed(record, range(8, 8 * count + 8, 8), 0)
            flags |= format.TAIL
        body = memoryview(whole)[RECORD_HEADER_BYTES:]
        fold.take(kind, sequence, number, decode(kind, body, where, flags), where)
    return state_hash.hash_of(state_hash.values_of(state))

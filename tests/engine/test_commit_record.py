"""The COMMIT record of a small transaction: both ways of packing it write the same bytes."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from quire.block import EncodedBlock, encode_one
from quire.engine.records.commit_record import PAYLOAD_AT, LedgerEntry, Read, pack, pack_light
from quire.limits import CONTROL_BYTES, MESSAGE_OVERHEAD_BYTES
from quire.messages.message_fields import Fields
from tests.kit.messages import FIELDS


def lone_messages(random: random.Random, count: int) -> list[Any]:
    """Messages for as many queues, of many sizes, some with fields."""
    made = []
    for queue_id in range(1, count + 1):
        payload = random.randbytes(random.choice((0, 1, 7, 8, 100, 20_000)))
        chosen = random.sample(sorted(FIELDS), random.randint(0, len(FIELDS)))
        fields = Fields.of(**{name: FIELDS[name] for name in chosen}) if chosen else None
        charge = len(payload) + MESSAGE_OVERHEAD_BYTES
        queue = SimpleNamespace(durable=SimpleNamespace(queue_id=queue_id))
        made.append(SimpleNamespace(queue=queue, payload=payload, fields=fields, charge=charge))
    return made


@pytest.mark.parametrize("messages", [0, 1, 2, 5])
@pytest.mark.parametrize("reads", [0, 1, 3])
@pytest.mark.parametrize("entries", [0, 2])
def test_both_ways_write_the_same(messages: int, reads: int, entries: int, seed: int) -> None:
    """The same record, parts, blocks and number of messages, and a first piece to be filled in."""
    source = random.Random(f"{seed} {messages} {reads} {entries}")
    lone = lone_messages(source, messages)
    passed = [Read(source.randint(1, 9), 1, start, start + 1) for start in range(reads)]
    ledger = [LedgerEntry("key" * number, number) for number in range(entries)]
    record, first, groups, blocks, count = pack_light(7, lone, passed, ledger)
    assert first is record
    long: list[Any] = [
        (
            one.queue,
            [
                EncodedBlock(
                    encode_one(one.payload, one.fields), 1, one.charge + CONTROL_BYTES,
                    len(one.payload),
                )
            ],
        )
        for one in lone
    ]  # fmt: skip
    expected, head, parts, inline, number = pack(7, long, passed, ledger)
    assert (head if isinstance(expected, tuple) else expected)[:16] == record[:16]
    assert b"".join(expected if isinstance(expected, tuple) else (expected,)) == bytes(record)
    assert [(queue, list(own)) for queue, own in groups] == list(parts)
    assert [
        (offset, data) if offset % 8 == 0 else (offset - PAYLOAD_AT, encode_one(bytes(data)))
        for offset, data in blocks
    ] == list(inline)
    assert count == number == messages

"""Sizes are said in one way: bytes, or a text such as "64m"."""

from __future__ import annotations

from typing import Any

import pytest

from quire.errors import InvalidArgument
from quire.sizes import bytes_of

SIZES = {
    "65536": 65536, "64k": 65536, "64K": 65536, "64 KiB": 65536, "64kb": 65536, "3b": 3,
    "1m": 1 << 20, "2 GB": 2 << 30, "1t": 1 << 40, " 7 ": 7,
}  # fmt: skip


@pytest.mark.parametrize("text", SIZES)
def test_a_text_is_a_size(text: str) -> None:
    """In powers of 1024, with or without the unit's B."""
    assert bytes_of(text) == SIZES[text]


@pytest.mark.parametrize("value", ["", "k", "1x", "1.5m", "-1k", "1 m b", "١k", 7, None, 2.5])
def test_what_is_no_such_text_stays_as_it_is(value: Any) -> None:
    """For the check of whoever takes the size."""
    assert bytes_of(value) is value


def test_queues_take_sizes_as_texts(store: Any) -> None:
    """When they are made, by themselves or several, when they are asked for again, and altered."""
    options: Any = {"grow_to": "4m", "max_message_bytes": "2k", "max_stream_bytes": "1g"}
    store.create_queue("q", capacity="1m", **options)
    store.create_queue("q", capacity="1m", exist_ok=True)
    store.admin.create_queues(
        [{"name": "p", "kind": "topic", "capacity": "64k", "keep_bytes": "8k"}]
    )
    info = store.queue("q")
    assert (info.capacity_bytes, info.grow_to) == (1 << 20, 4 << 20)
    assert (info.max_message_bytes, info.max_stream_bytes) == (2048, 1 << 30)
    assert (store.queue("p").capacity_bytes, store.queue("p").keep_bytes) == (65536, 8192)
    assert store.alter_queue("p", capacity="128k", keep_bytes="9k").capacity_bytes == 131072
    assert store.queue("p").keep_bytes == 9216
    for name in ("capacity", "grow_to", "max_message_bytes"):
        with pytest.raises(InvalidArgument, match=f"{name} '1x': give bytes"):
            store.create_queue("r", **{name: "1x"})

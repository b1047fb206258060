"""The index of equal values: what is hashed one by one has the hash that it has among others."""

from __future__ import annotations

import random

import pyarrow as pa

from quire.engine.lookup.attribute_index import hash_of, hashes_of
from quire.limits import HASHED_ONE_BY_ONE


def test_one_text_is_hashed_as_many_are(rng: random.Random) -> None:
    """Of any length, around the bound, too."""
    lengths = [*range(6), HASHED_ONE_BY_ONE - 1, HASHED_ONE_BY_ONE, HASHED_ONE_BY_ONE + 1, 1000]
    texts = ["".join(rng.choices("aé\0ключ\U0010ffff", k=length)) for length in lengths * 5]
    hashes, rows = hashes_of(pa.array([*texts, None], pa.string()))
    assert rows.tolist() == list(range(len(texts)))
    assert [hash_of(text) for text in texts] == list(hashes)


def test_one_number_is_hashed_as_many_are(rng: random.Random) -> None:
    """The least and the greatest, too."""
    numbers = [0, 1, -1, (1 << 63) - 1, -(1 << 63), *(rng.randint(-99, 1 << 62) for _ in range(9))]
    hashes, _ = hashes_of(pa.array(numbers, pa.int64()))
    assert [hash_of(number) for number in numbers] == list(hashes)

"""The check of columns that were read."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from quire.rows.row_check import check_column


def text(offsets: list[int], data: bytes, start: int = 0) -> pa.Array:
    """Of strings, whatever is said of them."""
    said = np.zeros(len(offsets), np.int32)
    buffers = [None, pa.py_buffer(said), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.string(), len(offsets) - 1 - start, buffers, offset=start)
    said[:] = offsets  # which Arrow does not see
    return array


@pytest.mark.parametrize(
    "wrong",
    [
        text([0, 3, 1, 4], b"abcd"),
        text([-1, 1, 4], b"abcd"),
        text([0, 2, 9], b"abcd"),
        text([0, 9, 4], b"abcd"),
        text([0, 1, 4], "aä".encode() + b"\xff"),
        text([0, 2, 3], "aä".encode()),
        text([0, 9], b"12345678\x80"),
        text([0, 0, -2, 4], b"abcd", start=1),
    ],
)
def test_text_that_is_not_whole_is_refused(wrong: pa.Array) -> None:
    """Offsets that fall, begin below or end beyond the bytes; bytes that are not UTF-8."""
    with pytest.raises(pa.ArrowInvalid):
        wrong.validate(full=True)
    with pytest.raises(pa.ArrowInvalid):
        check_column(wrong)


def test_it_says_what_arrow_says(request: pytest.FixtureRequest) -> None:
    """Of random offsets over random bytes."""
    rng = Random(f"text {request.config.getoption('--seed')}")
    refused = 0
    for _ in range(400):
        data = bytes(rng.choice(b"abcdefghijklmn\xc3\xa4") for _ in range(rng.randrange(12)))
        ends = sorted(rng.randrange(len(data) + 1) for _ in "four")
        if rng.random() < 0.3:
            ends[rng.randrange(4)] = rng.randrange(-1, 14)
        array = text(ends, data, rng.randrange(2))
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            refused += 1
            with pytest.raises(pa.ArrowInvalid):
                check_column(array)
        else:
            check_column(array)
    assert 20 < refused < 380

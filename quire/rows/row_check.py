"""Checking that columns of rows that were read are whole: by Arrow, and of text in a faster way.

RCH1. What is accepted Arrow's full check would accept too: buffers that are large enough, offsets
    that never fall and lie within their bytes, text in UTF-8.
"""

from __future__ import annotations

from quire.libraries import np, pa


def check_column(array: pa.Array) -> None:
    """Raise the error that Arrow raises for a column that is not whole (RCH1)."""
    array.validate()  # of the buffers' sizes, and of the first and the last offset
    if not (pa.types.is_string(array.type) and _is_plain(array)):
        array.validate(full=True)


def _is_plain(array: pa.Array) -> bool:
    """Return True if offsets rise and all bytes are ASCII, so that each string is whole.

    Arrow looks at string by string, which takes five times as long for short ones.
    """
    _, offsets, data = array.buffers()
    if not len(array) or offsets is None or data is None:
        return False
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    if ends[0] < 0 or ends[-1] > data.size or (ends[1:] < ends[:-1]).any():
        return False
    words = np.frombuffer(data, np.uint64, data.size >> 3)
    rest = np.frombuffer(data, np.uint8, data.size & 7, data.size & ~7)
    return not (np.bitwise_or.reduce(words) & np.uint64(0x8080808080808080) or (rest & 0x80).any())

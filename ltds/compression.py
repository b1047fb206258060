"""Compressing the blocks of large transactions' files, by Arrow's codecs.

- LC1: what is decompressed was verified before, and its size is bounded by what lies on the disk.
- Neither way holds the interpreter's lock, so that other threads go on meanwhile.
"""

from __future__ import annotations

from typing import Final

from quire.errors import InvalidArgument, StoreCorrupt, StoreVersion
from quire.libraries import pa

from .format import PAGE_BYTES, PLAIN_BYTES_PER_PAGE, Compression, paged

_NAMES: Final = {"zstd": Compression.ZSTD, "lz4": Compression.LZ4}
_ARROW_NAMES: Final = {Compression.ZSTD: "zstd", Compression.LZ4: "lz4_raw"}


def codec_named(name: object) -> Compression:
    """The codec of an option: None, "zstd" or "lz4". Raises InvalidArgument."""
    if name is None:
        return Compression.NONE
    codec = _NAMES.get(name) if isinstance(name, str) else None
    if codec is None:
        raise InvalidArgument(f"compression {name!r}: give None, {' or '.join(map(repr, _NAMES))}")
    if not pa.Codec.is_available(_ARROW_NAMES[codec]):
        raise InvalidArgument(
            f"compression {name!r}: this build of pyarrow cannot do it; install one that can, or "
            "give another"
        )
    return codec


def codec_numbered(number: int, location: str) -> Compression:
    """The codec that a file names. Raises StoreVersion."""
    try:
        codec = Compression(number)
    except ValueError:
        raise StoreVersion(
            f"{location}: compressed by codec {number}, which this release does not know: use a "
            "newer one"
        ) from None
    if codec and not pa.Codec.is_available(_ARROW_NAMES[codec]):
        raise StoreVersion(
            f"{location}: compressed by {codec.name.lower()}, which this build of pyarrow cannot "
            "read: install one that can"
        )
    return codec


def compress(codec: Compression, data: bytes | bytearray) -> bytes | bytearray:
    """The data compressed; as it is where that saves no page, or would become too large again."""
    if not codec:
        return data
    # As bytes: a memoryview of the buffer that Arrow would return is longer than its content.
    stored: bytes = pa.Codec(_ARROW_NAMES[codec]).compress(data, asbytes=True)
    pages = paged(len(stored)) // PAGE_BYTES
    if pages >= paged(len(data)) // PAGE_BYTES or len(data) > pages * PLAIN_BYTES_PER_PAGE:
        return data
    return stored


def decompress(
    codec: Compression, stored: memoryview, plain_length: int, location: str
) -> memoryview:
    """The reverse (LC1); less than `plain_length` leaves garbage behind it, as a block shows."""
    if len(stored) == plain_length:
        return stored
    try:
        plain = pa.Codec(_ARROW_NAMES[codec]).decompress(stored, plain_length)
    except OSError as error:
        raise StoreCorrupt(f"{location} cannot be decompressed ({error})") from error
    return memoryview(plain).toreadonly()

"""Identifiers of two-phase transactions, as PEP 249 and the XA standard have them: three parts.

The store knows an xid as one string. The parts are written as JDBC's and psycopg's drivers write
them for PostgreSQL, so that one identifier reads the same on both sides of a transaction:

    <format id, decimal> _ <Base64 of the global id> _ <Base64 of the branch qualifier>

- XI1: `Xid.from_string(str(xid)) == xid`, and `str(Xid.from_string(text)) == text` for every text.
- XI2: a string that is not exactly what the parts would be written as is kept whole, as the global
  id, with None for the other two: nothing that is in doubt is out of reach.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast, overload

from quire.errors import InvalidArgument

MAX_PART_BYTES: Final = 64  # XA's; as Base64 two of them and a format id stay below 200 bytes
MAX_FORMAT_ID: Final = (1 << 31) - 1
_TRIPLE: Final = re.compile(r"(0|[1-9][0-9]{0,9})_([^_]*)_([^_]*)", re.ASCII)


class Xid(Sequence[int | str | None]):
    """The name of a two-phase transaction, of three parts: format id, global id, branch qualifier.

    `str(xid)` is what the store knows it by, as JDBC's and psycopg's drivers write it for
    PostgreSQL; `Xid.from_string` takes it apart again.
    """

    __slots__ = ("bqual", "format_id", "gtrid", "prepared_us")

    def __init__(
        self, format_id: int | None, gtrid: str, bqual: str | None, prepared_us: int | None = None
    ) -> None:
        self.format_id = format_id
        self.gtrid = gtrid
        self.bqual = bqual
        self.prepared_us = prepared_us  # as `tpc_recover` tells it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Xid) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __repr__(self) -> str:
        return f"Xid{(*self.parts, self.prepared_us)}"

    @classmethod
    def from_parts(cls, format_id: int, gtrid: str, bqual: str) -> Xid:
        """Check the parts. Raises InvalidArgument."""
        is_int = isinstance(format_id, int) and not isinstance(format_id, bool)
        if not is_int or not 0 <= format_id <= MAX_FORMAT_ID:
            raise InvalidArgument(f"format id {format_id!r}: give an int from 0 to 2**31 - 1")
        for name, part in (("global id", gtrid), ("branch qualifier", bqual)):
            if not isinstance(part, str) or not _fits(part):
                raise InvalidArgument(
                    f"{name} {part!r}: give a str of up to {MAX_PART_BYTES} bytes in UTF-8"
                )
        return cls(format_id, gtrid, bqual)

    @classmethod
    def from_string(cls, text: str, prepared_us: int | None = None) -> Xid:
        """The xid that the store knows by this string (XI1, XI2)."""
        found = _TRIPLE.fullmatch(text)
        if found is not None:
            try:
                xid = cls.from_parts(int(found[1]), _decoded(found[2]), _decoded(found[3]))
            except ValueError:  # not Base64, not UTF-8, or too long
                pass
            else:
                if str(xid) == text:
                    return cls(*xid.parts, prepared_us)
        return cls(None, text, None, prepared_us)

    @classmethod
    def of(cls, value: object) -> Xid:
        """An xid given as one, as a string, or as another driver's sequence of three."""
        if isinstance(value, Xid):
            return value
        if isinstance(value, str):
            return cls.from_string(value)
        try:
            format_id, gtrid, bqual = cast("Iterable[Any]", value)
        except (TypeError, ValueError):
            raise InvalidArgument(f"xid {value!r}: give what xid() or tpc_recover() gave") from None
        if format_id is None and isinstance(gtrid, str):
            return cls.from_string(gtrid)
        return cls.from_parts(format_id, gtrid, bqual)

    @property
    def parts(self) -> tuple[int | None, str, str | None]:
        """The three as a plain tuple."""
        return self.format_id, self.gtrid, self.bqual

    def __str__(self) -> str:
        if self.format_id is None or self.bqual is None:
            return self.gtrid
        return f"{self.format_id}_{_encoded(self.gtrid)}_{_encoded(self.bqual)}"

    def __len__(self) -> int:
        return 3

    @overload
    def __getitem__(self, index: int) -> int | str | None: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[int | str | None, ...]: ...

    def __getitem__(self, index: int | slice) -> int | str | tuple[int | str | None, ...] | None:
        return self.parts[index]


def _fits(part: str) -> bool:
    try:
        return len(part.encode()) <= MAX_PART_BYTES
    except UnicodeEncodeError:  # lone surrogates, which UTF-8 cannot hold
        return False


def _encoded(part: str) -> str:
    return base64.b64encode(part.encode()).decode("ascii")


def _decoded(text: str) -> str:
    return base64.b64decode(text, validate=True).decode()

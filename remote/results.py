"""What the store tells about its parts, as JSON: written at the owner, read at the client.

- RE1: what is read has exactly the types that its class declares, or RemoteError is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from functools import cache
from types import UnionType
from typing import TypeVar, cast, get_args, get_origin, get_type_hints

from quire.errors import RemoteError
from quire.info import (
    CatalogItem,
    Lease,
    Piece,
    PreparedInfo,
    QueueInfo,
    QueueRecord,
    Report,
    SubscriptionInfo,
    TransactionInfo,
)

Info = QueueInfo | SubscriptionInfo | CatalogItem | PreparedInfo | TransactionInfo | Report
T = TypeVar("T")


def info_json(info: Info) -> dict[str, object]:
    """A queue, a subscription, a prepared or an open transaction, a report."""
    return asdict(info)


def infos_json(infos: Iterable[Info]) -> list[dict[str, object]]:
    """Several of them."""
    return [asdict(info) for info in infos]


def rows_json(rows: Sequence[QueueRecord] | Sequence[Piece]) -> list[list[object]]:
    """Records of a queue, or pieces of a lease."""
    return [list(row) for row in rows]


def lease_json(lease: Lease) -> dict[str, object]:
    """A lease; its pieces become lists."""
    return {
        "lease_id": lease.lease_id,
        "queue": lease.queue,
        "start": lease.start,
        "end": lease.end,
        "pieces": rows_json(lease.pieces),
    }


def read(kind: type[T], value: object) -> T:
    """What a JSON value holds: one of the classes above, or a number, a text, ... (RE1)."""
    return cast(T, _read(kind, value))


def read_list(kind: type[T], value: object) -> list[T]:
    """Several."""
    return [read(kind, entry) for entry in _exactly(list, value)]


def _read(kind: object, value: object) -> object:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:  # int | None
        return None if value is None else _read(inner[0], value)
    if origin in (tuple, list):  # tuple[str, ...], list[Piece]
        entries = [_read(inner[0], entry) for entry in _exactly(list, value)]
        return tuple(entries) if origin is tuple else entries
    if isinstance(kind, type) and is_dataclass(kind):
        return _read_fields(kind, _exactly(dict, value))
    if kind is Piece or kind is QueueRecord:
        return _read_row(kind, _exactly(list, value))
    if kind is float and type(value) is int:
        return float(value)
    return _exactly(cast(type, origin or kind), value)


def _read_fields(kind: type, values: dict[str, object]) -> object:
    kinds = _kinds(kind)
    if values.keys() != kinds.keys():
        raise _unreadable(kind, values)
    return kind(**{name: _read(kinds[name], value) for name, value in values.items()})


def _read_row(kind: type, values: list[object]) -> object:
    """A named tuple; as there may be many, they are looked at but not read one by one."""
    allowed = _allowed(kind)
    if len(values) != len(allowed) or any(
        type(value) not in kinds for value, kinds in zip(values, allowed, strict=True)
    ):
        raise _unreadable(kind, values)
    return kind(*values)


def _exactly(kind: type[T], value: object) -> T:
    if type(value) is not kind:
        raise _unreadable(kind, value)
    return value


@cache
def _allowed(kind: type) -> list[tuple[object, ...]]:
    """For each field of a row, the types that it may have."""
    return [get_args(hint) or (hint,) for hint in _kinds(kind).values()]


@cache
def _kinds(kind: type) -> dict[str, object]:
    return get_type_hints(kind)


def _unreadable(kind: object, value: object) -> RemoteError:
    return RemoteError(f"the owner's answer cannot be read: {value!r:.100} is no {kind}")

"""What the store tells about its parts, as JSON: written at the owner, read at the client.

- RE1: what is read has exactly the types that its class declares, or RemoteError is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import is_dataclass
from functools import cache, partial
from operator import attrgetter
from types import UnionType
from typing import Any, Final, TypeVar, cast, get_args, get_origin, get_type_hints

from quire.errors import RemoteError
from quire.info import (
    CatalogItem,
    Lease,
    Piece,
    PreparedInfo,
    QueueInfo,
    QueueRecord,
    Report,
    ScheduleInfo,
    SubscriptionInfo,
    TransactionInfo,
)

from .limits import KINDS_OF_ROWS

Info = (
    QueueInfo
    | SubscriptionInfo
    | CatalogItem
    | ScheduleInfo
    | PreparedInfo
    | TransactionInfo
    | Lease
    | Report
)
T = TypeVar("T")

_PLAIN: Final = frozenset({int, str, bool, type(None)})


def info_json(info: Info) -> list[object]:
    """A queue, a subscription, a prepared or an open transaction, a report: its fields in order."""
    return list(_fields(cast(Hashable, type(info)))(info))


def infos_json(infos: Iterable[Info]) -> list[list[object]]:
    """Several of them."""
    return [info_json(info) for info in infos]


def rows_json(rows: Sequence[QueueRecord] | Sequence[Piece]) -> list[list[object]]:
    """Records of a queue, or pieces of a lease."""
    return [list(row) for row in rows]


def read(kind: type[T], value: object) -> T:
    """What a JSON value holds: one of the classes above, or a number, a text, ... (RE1)."""
    return cast(T, _reader(cast(Hashable, kind))(value))


def read_list(kind: type[T], value: object) -> list[T]:
    """Several."""
    return cast(list[T], list(map(_reader(cast(Hashable, kind)), _exactly(list, value))))


@cache
def _reader(kind: Hashable) -> Callable[[object], object]:
    """What reads values of a type; made once, as there may be many of them."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:  # int | None, str | dict[str, Any]
        return _any_of(inner)
    if origin in (tuple, list):  # tuple[str, ...], list[Piece]
        each, several = _reader(inner[0]), cast(type, origin)
        return lambda value: several(map(each, _exactly(list, value)))
    if kind is Piece or kind is QueueRecord or is_dataclass(kind):
        return _row_reader(cast(type, kind))
    if kind is float:
        return lambda value: float(value) if type(value) is int else _exactly(float, value)
    return partial(_exactly, cast(type, origin or kind))


def _any_of(kinds: tuple[Any, ...]) -> Callable[[object], object]:
    """What reads values of one of several types."""
    first = _reader(kinds[0])
    readers: dict[Any, Callable[[object], object]] = {}
    for kind in kinds:
        origin: Any = get_origin(kind)
        readers[kind if origin is None else origin] = _reader(kind)
    return lambda value: readers.get(type(value), first)(value)


def _row_reader(kind: type) -> Callable[[object], object]:
    """Of objects by their fields; plain values are looked at and no more."""
    hints = get_type_hints(kind).values()
    plain = [get_args(hint) if get_origin(hint) is UnionType else (hint,) for hint in hints]
    readers = [
        (index, _reader(hint))
        for index, (kinds, hint) in enumerate(zip(plain, hints, strict=True))
        if not _PLAIN.issuperset(kinds)
    ]
    inner = [index for index, _ in readers]
    known: set[tuple[type, ...]] = set()  # types of fields that were right; there are many rows

    def check(values: list[object], types: tuple[type, ...]) -> None:
        if len(types) != len(plain) or not all(
            index in inner or each in kinds
            for index, (each, kinds) in enumerate(zip(types, plain, strict=True))
        ):
            raise _unreadable(kind, values)
        if len(known) < KINDS_OF_ROWS:
            known.add(types)

    def read_row(value: object) -> object:
        values = _exactly(list, value)
        types = (*map(type, values),)
        if types not in known:
            check(values, types)
        for index, reader in readers:
            values[index] = reader(values[index])
        return kind(*values)

    return read_row


def _exactly(kind: type[T], value: object) -> T:
    if type(value) is not kind:
        raise _unreadable(kind, value)
    return value


@cache
def _fields(kind: Hashable) -> Callable[[object], tuple[object, ...]]:
    """What takes an object's fields."""
    return attrgetter(*get_type_hints(kind))


def _unreadable(kind: object, value: object) -> RemoteError:
    return RemoteError(f"the owner's answer cannot be read: {value!r:.100} is no {kind}")

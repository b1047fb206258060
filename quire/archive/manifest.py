"""Manifests of bases, and other small documents of an archive. Layout: `format`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from quire.calls.decoded_types import decodable
from quire.checksum import checksum
from quire.env import Env
from quire.errors import ArchiveCorrupt, ArchiveRefused, ObjectNotFound
from quire.limits import MAX_TIME_US

from . import format
from .limits import MAX_CREATE_BYTES
from .objects import ObjectInfo, Objects, probe

T = TypeVar("T")
ReportProgress: TypeAlias = Callable[[int, int], None]
"""Called now and then with the bytes that are done, and how many there are, nearly."""


_Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Microseconds: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_TIME_US)]
_Hex: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")]


class StoredObject(Struct, frozen=True, omit_defaults=True):
    """An object that a manifest names."""

    name: str
    bytes: _Count
    checksum: _Hex
    trailer: str = ""  # of a large transaction's file: the checksum of its trailer


class Manifest(Struct, frozen=True):
    """All of a base."""

    base: str
    store_id: _Hex
    number: _Count
    time_us: _Microseconds
    state_hash: str
    generation: _Hex  # of the journal
    payload_bytes: _Count
    state: StoredObject
    tables: list[StoredObject]
    packs: list[StoredObject]
    files: list[StoredObject]
    history: _Hex = f"{0:016x}"  # of the continuous archive; 0: the store had none
    version: int = format.VERSION

    def __post_init__(self) -> None:
        """Raise ValueError unless it names what a base of that name has, and nothing else."""
        names = [stored.name for stored in self.objects()]
        count, files = len(self.packs), names[1 + 2 * len(self.packs) :]
        expected = [
            format.state_name(self.base),
            *(format.table_name(self.base, number) for number in range(count)),
            *(format.pack_name(self.base, number) for number in range(count)),
        ]
        if names[: len(expected)] != expected or not all(map(format.is_name, names)):
            raise ValueError("it names what is not of its backup")
        if not all(name.startswith(format.FILES) for name in files) or len(files) != len({*files}):
            raise ValueError("its files are not those of large transactions")

    @property
    def history_number(self) -> int:
        """The history, as entries have it."""
        return int(self.history, 16)

    @property
    def order(self) -> tuple[int, int, int, str]:
        """By which bases come one after another."""
        return int(self.generation, 16) >> 32, self.number, self.time_us, self.base

    def objects(self) -> list[StoredObject]:
        """Return all objects that it names."""
        return [self.state, *self.tables, *self.packs, *self.files]


class BackupInfo(Struct, frozen=True):
    """A backup in an archive."""

    base: str  # its name
    number: int  # of the latest record that it has
    time_us: int  # when it was made, microseconds since the epoch
    bytes: int = 0  # of all its objects
    objects: int = 0
    state_hash: str = ""
    damage: str = ""  # why it cannot be read; empty: its manifest is whole
    until_number: int = 0  # of the latest record to which a restore of it can go on
    until_us: int = 0  # when that was committed, or when the backup was made
    end: str = ""  # why later records cannot follow: "gap", damage; empty: none was shipped yet


class BackupReport(Struct, frozen=True):
    """A backup that was made."""

    backup: BackupInfo
    sent_bytes: int  # the part of it that was not in the archive before


class RestoreReport(Struct, frozen=True):
    """A store that was restored."""

    backup: BackupInfo  # with which it began
    number: int  # of its latest record
    time_us: int  # when that was committed, or when the backup was made, if that was later
    state_hash: str  # as `verify` tells it of a store at that record


class _StoreDocument(Struct, frozen=True):
    """The archive's store."""

    store_id: _Hex
    made_us: int
    version: int = format.VERSION


class FoundManifest(Struct, frozen=True):
    """A manifest in an archive; None: it is damaged."""

    info: BackupInfo
    manifest: Manifest | None = None


def sealed(document: Struct) -> bytes:
    """Return a document's bytes."""
    text = msgspec.json.encode(document)
    return f"{checksum(text):016x}\n".encode() + text


def unsealed(kind: type[T], data: bytes, name: str) -> T:
    """Return the document of the bytes. Raises ArchiveCorrupt, ArchiveRefused."""
    digest, _, text = data.partition(b"\n")
    if digest != f"{checksum(text):016x}".encode():
        raise ArchiveCorrupt(f"the archive's object {name} is damaged: its checksum differs")
    try:
        if msgspec.json.decode(text).get("version") != format.VERSION:
            raise ArchiveRefused(
                f"the archive's object {name} is of a format that this release cannot read: use a "
                "newer one"
            )
        return msgspec.json.decode(text, type=decodable(kind))
    except (ValueError, AttributeError, RecursionError) as error:
        raise ArchiveCorrupt(f"the archive's object {name} is damaged ({error})") from None


def check_store(objects: Objects, env: Env, store_id: int) -> None:
    """Make the archive this store's, if it is nobody's. Raises ArchiveRefused for another's."""
    if has_store(objects, store_id):
        return
    probe(objects, env)
    document = _StoreDocument(f"{store_id:016x}", env.now_us())
    objects.create(format.STORE, sealed(document))
    _check_same(objects, read_store(objects), store_id)


def has_store(objects: Objects, store_id: int) -> bool:
    """Return True if the archive is this store's, False if it is nobody's.

    Raises ArchiveRefused for another's, ArchiveCorrupt.
    """
    try:
        found = read_store(objects)
    except ObjectNotFound:
        return False
    _check_same(objects, found, store_id)
    return True


def _check_same(objects: Objects, found: int, store_id: int) -> None:
    if found != store_id:
        raise ArchiveRefused(
            f"{objects.url} is the archive of store {found:016x}, and this one is {store_id:016x}: "
            "give another place"
        )


def read_store(objects: Objects) -> int:
    """Return the id of the archive's store. Raises ObjectNotFound, ArchiveCorrupt."""
    try:
        return int(
            unsealed(_StoreDocument, _read(objects, format.STORE), format.STORE).store_id, 16
        )
    except ArchiveCorrupt as error:
        raise ArchiveCorrupt(
            f"{error}; the backups beside it can be restored: give another place, or, if "
            f"{objects.url} is this store's archive, delete that object: a backup makes it anew"
        ) from error


def manifests(objects: Objects) -> list[FoundManifest]:
    """Return all that there are, the oldest first. Raises ArchiveFailed.

    Their order is that of the store's openings and of record numbers, whatever a clock has shown;
    a restored store's openings come after those of the backup's. A damaged one is placed by time.
    """
    found, damaged = [], []
    for listed in objects.list(format.BASES):
        base, _, name = listed.name.removeprefix(format.BASES).partition("/")
        if name != format.MANIFEST or not format.is_name(listed.name):
            continue
        try:
            manifest = unsealed(Manifest, _read(objects, listed.name), listed.name)
            if manifest.base != base:
                raise ArchiveCorrupt(f"the archive's object {listed.name} is another base's")
        except ObjectNotFound:  # removed meanwhile
            continue
        except (ArchiveCorrupt, ArchiveRefused) as error:
            damaged.append(FoundManifest(_damaged(base, listed.modified_us, str(error))))
        else:
            found.append((manifest.order, FoundManifest(info_of(manifest), manifest)))
    ordered = [each for _, each in sorted(found, key=lambda pair: pair[0])]
    for each in sorted(damaged, key=lambda each: (each.info.time_us, each.info.base)):
        earlier = [i for i, one in enumerate(ordered) if one.info.time_us <= each.info.time_us]
        ordered.insert(earlier[-1] + 1 if earlier else 0, each)
    return ordered


def own_objects(
    objects: Objects, prefixes: Iterable[str] = (*format.OF_BASES, *format.OF_ENTRIES)
) -> Iterator[ObjectInfo]:
    """Yield the objects that an archive makes: others may be in the same place."""
    for prefix in prefixes:
        for listed in objects.list(prefix):
            if format.is_name(listed.name):
                yield listed


def _read(objects: Objects, name: str) -> bytes:
    """Return a small document, or so much of a large object that it is damaged."""
    return objects.read(name, 0, MAX_CREATE_BYTES + 1)


def _damaged(base: str, time_us: int, reason: str) -> BackupInfo:
    return BackupInfo(base, int(base[:16], 16), time_us, damage=reason)


def info_of(manifest: Manifest) -> BackupInfo:
    """Return a backup as it is listed."""
    objects = manifest.objects()
    return BackupInfo(
        manifest.base, manifest.number, manifest.time_us, sum(each.bytes for each in objects),
        len(objects), manifest.state_hash, "", manifest.number, manifest.time_us,
    )  # fmt: skip


def names_of(found: Iterable[FoundManifest]) -> set[str]:
    """Return the names of all objects of these bases, their manifests among them."""
    names = {format.STORE}
    for each in found:
        names.add(format.manifest_name(each.info.base))
        if each.manifest is not None:
            names.update(stored.name for stored in each.manifest.objects())
    return names

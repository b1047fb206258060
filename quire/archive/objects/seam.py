"""The seam of an archive: named bytes, in an object store or in a directory.

Guarantees of every implementation:

- AO1: an object is whole. What `create`, `upload` or `overwrite` has made, and what `create` has
  found in the way, is durable when the call returns. What a call that raised an error leaves is
  whole or not there, and may still appear later, also where the call was repeated and the object
  deleted since: a name is used for the same bytes, or never again.
- AO2: `create` has one winner, over all processes and machines. There is no compare-and-swap: a
  directory has none.
- AO3: no error and no `url` has a credential in it.
- Every request ends, with an error if need be, in a time that is bounded (`quire.archive.limits`).

Errors: ArchiveFailed where the store cannot be reached or refuses, after repeated tries; DiskFull.
An object may be used by several threads at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from msgspec import Struct

ObjectBytes = bytes | bytearray | memoryview


class ObjectInfo(Struct, frozen=True):
    """An object as a listing shows it."""

    name: str
    bytes: int
    modified_us: int  # since 1970, by the clock of the store


class Objects(Protocol):
    """Named bytes. Names are of the characters A-Z a-z 0-9 . _ - in parts between `/`.

    No part begins with a dot, and no object has the name of a part above another one.
    """

    url: str  # where they are, without credentials

    def create(self, name: str, data: ObjectBytes) -> bool:
        """Make an object, of at most `MAX_CREATE_BYTES`, if there is none of that name (AO1, AO2).

        Returns False where there is one, whoever made it: `create_own` looks whose it is.
        """

    def upload(self, name: str, pieces: Iterable[ObjectBytes]) -> None:
        """Make a large object piece by piece.

        The name is the caller's own, random or never used with other bytes: one of that name is
        replaced. After a failure that may pass the pieces are sent again, if there is little of
        them or they can be iterated again; a part of a large upload is sent again anyhow.
        """

    def overwrite(self, name: str, data: ObjectBytes) -> None:
        """Make or replace a small object that is a hint only: which of two comes last is open."""

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return the bytes from `offset` on, fewer than `length` only at the object's end.

        Raises ObjectNotFound.
        """

    def size(self, name: str) -> int:
        """Return the object's number of bytes. Raises ObjectNotFound."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix, each once, in any order.

        The prefix is empty, or ends with a `/`. An object that is made or deleted meanwhile may be
        shown or not.
        """

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; one that is not there is passed over. It is durable at the return."""

    def close(self) -> None:
        """Give up connections and files."""

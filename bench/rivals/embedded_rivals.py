"""Other embedded stores, used as queues: a batch of messages in one durable transaction.

Each keeps messages under an increasing number, as a queue on top of it would, and syncs once per
transaction, as Quire does. SQLite: WAL and synchronous=FULL. LMDB: its defaults, keys appended.
RocksDB: one write batch with a synced log.
"""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path
from typing import Any, Protocol

import lmdb
import rocksdict

__all__ = ["RIVALS", "Lmdb", "Rival", "RocksDb", "Sqlite"]

MAP_BYTES = 16 << 30


class Rival(Protocol):
    """A store that can be filled batch by batch."""

    name: str

    def put(self, payloads: list[bytes]) -> None:
        """Store all payloads in one durable transaction."""

    def read(self) -> int:
        """Read all payloads in order as bytes objects; how many there were."""

    def close(self) -> None: ...


class Sqlite:
    """SQLite in WAL mode, synchronous=FULL."""

    name = "SQLite"

    def __init__(self, folder: Path) -> None:
        self._database = sqlite3.connect(folder / "sqlite.db", isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, payload BLOB)")

    def put(self, payloads: list[bytes]) -> None:
        self._database.execute("BEGIN")
        rows = ((payload,) for payload in payloads)
        self._database.executemany("INSERT INTO message (payload) VALUES (?)", rows)
        self._database.execute("COMMIT")

    def read(self) -> int:
        rows = self._database.execute("SELECT payload FROM message ORDER BY id")
        return len([payload for (payload,) in rows])

    def close(self) -> None:
        self._database.close()


class Lmdb:
    """LMDB with its default durability."""

    name = "LMDB"

    def __init__(self, folder: Path) -> None:
        self._environment = lmdb.open(str(folder / "lmdb"), map_size=MAP_BYTES)
        self._next = 0

    def put(self, payloads: list[bytes]) -> None:
        pairs = [
            (struct.pack(">Q", number), payload)
            for number, payload in enumerate(payloads, self._next)
        ]
        with self._environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(pairs, append=True)
        self._next += len(payloads)

    def read(self) -> int:
        with self._environment.begin() as transaction:
            return len(list(transaction.cursor().iternext(keys=False, values=True)))

    def close(self) -> None:
        self._environment.close()


class RocksDb:
    """RocksDB with a synced write-ahead log."""

    name = "RocksDB"

    def __init__(self, folder: Path) -> None:
        options = rocksdict.Options(raw_mode=True)
        self._database = rocksdict.Rdict(str(folder / "rocksdb"), options=options)
        self._durable: Any = rocksdict.WriteOptions()
        self._durable.sync = True
        self._next = 0

    def put(self, payloads: list[bytes]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for number, payload in enumerate(payloads, self._next):
            batch.put(struct.pack(">Q", number), payload)
        self._database.write(batch, self._durable)
        self._next += len(payloads)

    def read(self) -> int:
        return len(list(self._database.values()))

    def close(self) -> None:
        self._database.close()


RIVALS = (Sqlite, Lmdb, RocksDb)

"""The clients of each server, with messages of 100 bytes. Each has queues of its own.

Redis: lists, by a client of its own over the socket, which sends what belongs together at once. A
message that is moved is looked at first, then removed and put twice in one MULTI. PostgreSQL: a
table for each queue, the statements prepared by psycopg.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from bench.measuring.payloads import as_list

__all__ = ["CLIENTS", "Client"]

BATCH = 1_000


class Client(Protocol):
    """A process's connection; each method is one durable transaction."""

    def put(self) -> object:
        """A message into the first queue."""

    def get(self) -> object:
        """A message out of the first queue."""

    def move(self) -> object:
        """A message out of the first queue, and two into the second and the third."""

    def put_batch(self) -> object:
        """`BATCH` messages into the first queue, as a list of bytes."""

    def get_batch(self) -> object:
        """`BATCH` messages out of the first queue."""

    def close(self) -> None: ...


class QuireClient:
    """Quire, joined."""

    def __init__(self, address: str, number: int) -> None:
        import quire

        self._store = quire.open(address)
        assert self._store.role == "joined"
        self._queues = [f"{name}-{number}" for name in "abc"]
        self._store.admin.create_queues(
            [{"name": name, "kind": "work", "capacity": 1 << 32} for name in self._queues]
        )
        self._first, self._second, self._third = self._queues
        self._payload, self._payloads = as_list(1, 1)[0], as_list(BATCH, 1)
        self._array = pa.array(self._payloads, pa.binary())

    def put(self) -> object:
        return self._store.put(self._first, self._payload)

    def get(self) -> object:
        with self._store.transaction() as transaction:
            message = transaction.get(self._first)
            assert message is not None
            return message.payload

    def move(self) -> object:
        with self._store.transaction() as transaction:
            message = transaction.get(self._first)
            assert message is not None
            transaction.put(self._second, message.payload)
            return transaction.put(self._third, message.payload)

    def put_batch(self) -> object:
        with self._store.transaction() as transaction:
            return transaction.put_many(self._first, self._payloads)

    def get_batch(self) -> object:
        with self._store.transaction() as transaction:
            payloads = transaction.get_many(self._first, BATCH).payloads()
        assert len(payloads) == BATCH
        return payloads

    def put_arrow(self) -> object:
        with self._store.transaction() as transaction:
            return transaction.put_many(self._first, self._array)

    def get_arrow(self) -> object:
        with self._store.transaction() as transaction:
            batch = transaction.get_arrow(self._first, BATCH)
        assert len(batch) == BATCH
        return batch

    def close(self) -> None:
        self._store.close()


class RedisClient:
    """The protocol of Redis, as far as it is needed here."""

    def __init__(self, address: str, number: int) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)
        first, second, third = (f"{name}-{number}".encode() for name in "abc")
        self._payload, payloads = as_list(1, 1)[0], as_list(BATCH, 1)
        self._put = command(b"RPUSH", first, self._payload)
        self._get = command(b"LPOP", first)
        self._look = command(b"LINDEX", first, b"0")
        self._put_batch = command(b"RPUSH", first, *payloads)
        self._get_batch = command(b"LPOP", first, b"%d" % BATCH)
        self._second, self._third = second, third

    def put(self) -> object:
        return self._ask(self._put)

    def get(self) -> object:
        payload = self._ask(self._get)
        assert isinstance(payload, bytes)
        return payload

    def move(self) -> object:
        payload = self._ask(self._look)
        assert isinstance(payload, bytes)
        self._connection.sendall(
            MULTI + self._get + command(b"RPUSH", self._second, payload)
            + command(b"RPUSH", self._third, payload) + EXEC
        )  # fmt: skip
        rest = b""
        for _ in range(4):
            _, rest = self._read(rest)
        done, _ = self._read(rest)
        assert isinstance(done, list)
        return done

    def put_batch(self) -> object:
        return self._ask(self._put_batch)

    def get_batch(self) -> object:
        payloads = self._ask(self._get_batch)
        assert isinstance(payloads, list)
        assert len(payloads) == BATCH
        return payloads

    def close(self) -> None:
        self._connection.close()

    def _ask(self, request: bytes) -> object:
        return self.ask_all(request, 1)

    def ask_all(self, requests: bytes, count: int) -> object:
        """Send so many at once; the last one's reply."""
        self._connection.sendall(requests)
        rest, reply = b"", None
        for _ in range(count):
            reply, rest = self._read(rest)
        return reply

    def _read(self, data: bytes) -> tuple[object, bytes]:
        """The next reply, and what came after it."""
        while b"\r\n" not in data:
            data += self._connection.recv(1 << 20)
        line, _, data = data.partition(b"\r\n")
        kind, text = line[:1], line[1:]
        if kind == b"$":
            size = int(text)
            if size < 0:
                return None, data
            while len(data) < size + 2:
                data += self._connection.recv(1 << 20)
            return data[:size], data[size + 2 :]
        if kind == b"*":
            replies: list[object] = []
            at = 0
            for _ in range(int(text)):
                reply, at, data = self._element(data, at)
                replies.append(reply)
            return replies, data[at:]
        assert kind in b"+:", line
        return text, data

    def _element(self, data: bytes, at: int) -> tuple[object, int, bytes]:
        """Return one of many elements, without a copy of what follows."""
        while (end := data.find(b"\r\n", at)) < 0:
            data += self._connection.recv(1 << 20)
        kind, text = data[at : at + 1], data[at + 1 : end]
        if kind != b"$":
            return text, end + 2, data
        start, stop = end + 2, end + 2 + int(text)
        while len(data) < stop + 2:
            data += self._connection.recv(1 << 20)
        return data[start:stop], stop + 2, data


def command(*parts: bytes) -> bytes:
    """A command, as Redis takes it."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


MULTI, EXEC = command(b"MULTI"), command(b"EXEC")


class PostgresClient:
    """psycopg; a lone statement commits by itself."""

    def __init__(self, address: str, number: int) -> None:
        import psycopg

        self._connection = psycopg.connect(address, autocommit=True, prepare_threshold=1)
        self._execute: Callable[..., Any] = self._connection.execute
        self._payload, self._payloads = as_list(1, 1)[0], as_list(BATCH, 1)
        for name in "abc":
            self._execute(
                f"CREATE TABLE {name}_{number} (id bigserial PRIMARY KEY, payload bytea NOT NULL)"
            )
        put = "INSERT INTO {}_{} (payload) VALUES (%s)"
        self._put, self._second, self._third = (put.format(name, number) for name in "abc")
        self._get = (
            f"DELETE FROM a_{number} WHERE id IN (SELECT id FROM a_{number} ORDER BY id LIMIT {{}}"
            " FOR UPDATE SKIP LOCKED) RETURNING payload"
        )
        self._put_many = f"INSERT INTO a_{number} (payload) SELECT unnest(%s::bytea[])"

    def put(self) -> object:
        return self._execute(self._put, (self._payload,), binary=True)

    def get(self) -> object:
        (payload,) = self._execute(self._get.format(1), binary=True).fetchone()
        return payload

    def move(self) -> object:
        with self._connection.transaction():
            payload = self.get()
            self._execute(self._second, (payload,))
            return self._execute(self._third, (payload,))

    def put_batch(self) -> object:
        return self._execute(self._put_many, (self._payloads,))

    def get_batch(self) -> object:
        rows = self._execute(self._get.format(BATCH), binary=True).fetchall()
        assert len(rows) == BATCH
        return [payload for (payload,) in rows]

    def close(self) -> None:
        self._connection.close()


class FloorClient:
    """A client of as many round trips, and as many of them durable."""

    def __init__(self, address: str, number: int) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)
        self._look, self._change = b"l" * 120, b"d" * 120

    def put(self) -> object:
        return self._ask(self._change)

    def get(self) -> object:
        self._ask(self._look)
        return self._ask(self._change)

    move = get

    def put_batch(self) -> object:
        return None

    get_batch = put_batch

    def close(self) -> None:
        self._connection.close()

    def _ask(self, request: bytes) -> bytes:
        self._connection.send(request)
        return self._connection.recv(65536)


CLIENTS: dict[str, Callable[[str, int], Client]] = {
    "Quire": QuireClient,
    "Redis": RedisClient,
    "PostgreSQL": PostgresClient,
    "floor": FloorClient,
}

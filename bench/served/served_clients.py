"""The clients of each server, with messages of 100 bytes. Each has queues of its own.

Redis: lists, by a client of its own over the socket, which sends what belongs together at once. A
message that is moved is looked at first, then removed and put twice in one MULTI. PostgreSQL: a
table for each queue, the statements prepared by psycopg. NATS: JetStream, by a client of its own.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from bench.measuring.payloads import as_list
from quire.interface.store import Store

__all__ = ["CLIENTS", "Client"]

BATCH = 1_000


class Client(Protocol):
    """A process's connection; each method is one durable transaction."""

    batch: ClassVar[int]  # messages of `put_batch` and `get_batch`

    def put(self) -> object:
        """A message into the first queue."""

    def get(self) -> object:
        """A message out of the first queue."""

    def move(self) -> object:
        """A message out of the first queue, and two into the second and the third."""

    def put_batch(self) -> object:
        """A batch of messages into the first queue, as a list of bytes."""

    def get_batch(self) -> object:
        """A batch of messages out of the first queue."""

    def close(self) -> None: ...


class QuireClient:
    """Quire, joined: by a path, or a URL and the files of a certificate, a line each."""

    batch: ClassVar[int] = BATCH

    def __init__(self, address: str, number: int) -> None:
        import quire

        place, *files = address.split("\n")
        tls = quire.Tls(ca=files[0], cert=files[1], key=files[2]) if files else None
        is_owners = place.startswith("quire+")  # it is no next owner, which would load the engine
        self._store: Store = quire.connect(place) if is_owners else quire.open(place, tls=tls)
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

    batch: ClassVar[int] = BATCH

    def __init__(self, address: str, number: int) -> None:
        if address.isdigit():  # a port
            self._connection = socket.create_connection(("127.0.0.1", int(address)))
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
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

    batch: ClassVar[int] = BATCH

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

    batch: ClassVar[int] = BATCH

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


class NatsClient:
    """The protocol of NATS, as far as JetStream needs it here: a work queue for each queue.

    There are no transactions: what is moved is put, and acknowledged once the puts are.
    """

    batch: ClassVar[int] = 100  # each is synced alone

    def __init__(self, address: str, number: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", int(address)))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self._payload, payloads = as_list(1, 1)[0], as_list(self.batch, 1)
        self._inbox = b"_INBOX.%d" % number
        self._connection.sendall(b'CONNECT {"verbose":false}\r\nSUB %s 1\r\n' % self._inbox)
        stream, self._first, self._second, self._third = (
            f"{name}-{number}" for name in ("stream", "a", "b", "c")
        )
        subjects = [self._first, self._second, self._third]
        for name, request in {
            f"STREAM.CREATE.{stream}": {"name": stream, "subjects": subjects, "storage": "file"},
            f"CONSUMER.DURABLE.CREATE.{stream}.all": {
                "stream_name": stream,
                "config": {
                    "durable_name": "all",
                    "ack_policy": "explicit",
                    "filter_subject": self._first,
                    "max_ack_pending": 1000,
                },
            },
        }.items():
            answer = json.loads(self._ask(f"$JS.API.{name}", json.dumps(request).encode()))
            assert "error" not in answer, answer
        self._next = self._publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.all", b"1")
        self._put = self._publish(self._first, self._payload)
        self._put_batch = b"".join(self._publish(self._first, payload) for payload in payloads)

    def put(self) -> object:
        self._connection.sendall(self._put)
        return self._answer()

    def get(self) -> object:
        payload, reply = self._take()
        self._ask(reply, b"+ACK")
        return payload

    def move(self) -> object:
        payload, reply = self._take()
        self._connection.sendall(
            self._publish(self._second, payload) + self._publish(self._third, payload)
        )
        self._answer()
        self._answer()
        return self._ask(reply, b"+ACK")

    def put_batch(self) -> object:
        self._connection.sendall(self._put_batch)
        return [self._answer() for _ in range(self.batch)]

    def get_batch(self) -> object:
        return [self.get() for _ in range(self.batch)]

    def close(self) -> None:
        self._connection.close()

    def _publish(self, subject: str, payload: bytes) -> bytes:
        head = b"PUB %s %s %d\r\n" % (subject.encode(), self._inbox, len(payload))
        return head + payload + b"\r\n"

    def _ask(self, subject: str, payload: bytes) -> bytes:
        self._connection.sendall(self._publish(subject, payload))
        return self._answer()

    def _answer(self) -> bytes:
        return self._message()[0]

    def _take(self) -> tuple[bytes, str]:
        """A message, and where it is acknowledged."""
        self._connection.sendall(self._next)
        return self._message()

    def _message(self) -> tuple[bytes, str]:
        """The next message, and its subject for a reply."""
        while True:
            line = self._line()
            kind, *words = line.split(b" ")
            if kind == b"PING":
                self._connection.sendall(b"PONG\r\n")
            elif kind == b"MSG":
                size = int(words[-1])
                while len(self._data) < size + 2:
                    self._receive()
                payload, self._data = self._data[:size], self._data[size + 2 :]
                return payload, words[2].decode() if len(words) == 4 else ""
            else:
                assert kind in (b"INFO", b"PONG"), line

    def _line(self) -> bytes:
        while b"\r\n" not in self._data:
            self._receive()
        line, _, self._data = self._data.partition(b"\r\n")
        return line

    def _receive(self) -> None:
        data = self._connection.recv(1 << 20)
        assert data, "nats-server has ended the connection"
        self._data += data


CLIENTS: dict[str, Callable[[str, int], Client]] = {
    "Quire": QuireClient,
    "Quire TCP": QuireClient,
    "Quire TLS": QuireClient,
    "Redis": RedisClient,
    "NATS": NatsClient,
    "PostgreSQL": PostgresClient,
    "floor": FloorClient,
}

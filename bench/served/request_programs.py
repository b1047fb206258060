"""Clients and servers of requests, each with the library that a user of that system has.

A client has a request in flight, and asks the next one when it has the reply: the request's 100
bytes. A server answers until it is killed. Run as a program: `client` or `server`, the kind, the
address.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import quire
import quire.aio
from bench.measuring.program import answer_orders, say_ready

__all__ = ["CLIENTS", "SERVERS", "main"]

PAYLOAD = b"x" * 100
REQUESTS, REPLIES = "requests", "replies"
WAIT_SECONDS = 60.0

RequestTurn = Callable[[int], list[float]]  # so many requests: the seconds of each


def turn_of(ask: Callable[[], object]) -> RequestTurn:
    """A turn of one that asks by a plain call."""

    def turn(count: int) -> list[float]:
        times, clock = [], time.perf_counter
        for _ in range(count):
            began = clock()
            reply = ask()
            times.append(clock() - began)
            assert reply == PAYLOAD
        return times

    return turn


async def turn_of_tasks(ask: Callable[[], Awaitable[object]], count: int) -> list[float]:
    """The same for a task that asks."""
    times, clock = [], time.perf_counter
    for _ in range(count):
        began = clock()
        reply = await ask()
        times.append(clock() - began)
        assert reply == PAYLOAD
    return times


# Quire --------------------------------------------------------------------------------------------


def make_queues(store: quire.Store, kind: str) -> None:
    """Requests and replies, both durable or both volatile."""
    store.create_queue(REQUESTS, type=kind, exist_ok=True)
    store.create_queue(REPLIES, type=kind, indexed=["correlation_id"], exist_ok=True)


def asking(store: quire.Store, replies: str | None) -> RequestTurn:
    """Return a turn of `Store.request`."""
    return turn_of(
        lambda: store.request(REQUESTS, PAYLOAD, timeout=WAIT_SECONDS, replies=replies).payload
    )


def answering_workers(store: quire.Store) -> quire.Workers:
    """Return workers that answer by what they were asked."""
    workers = quire.Workers(store)

    @workers.answer(REQUESTS)
    def answer(request: quire.Message, txn: quire.Transaction) -> bytes:
        return request.payload

    return workers


@contextmanager
def threads(address: str) -> Iterator[RequestTurn]:
    """Run a client and a server as threads of one process."""
    with quire.open(address) as store:
        make_queues(store, "persistent")
        workers = answering_workers(store)
        thread = threading.Thread(target=workers.run)
        thread.start()
        try:
            yield asking(store, None)
        finally:
            workers.stop()
            thread.join()


@contextmanager
def coroutines(address: str) -> Iterator[RequestTurn]:
    """Run a client and a server as tasks of one process."""
    with asyncio.Runner() as runner:
        store = runner.run(_opened(address))
        workers = quire.aio.AsyncWorkers(store)

        @workers.on(REQUESTS)
        async def answer(request: Any, txn: Any) -> None:
            await quire.put_reply(txn, request, request.payload)

        running = runner.get_loop().create_task(workers.run())

        async def ask() -> object:
            reply = await store.request(REQUESTS, PAYLOAD, timeout=WAIT_SECONDS)
            return reply.payload

        async def end() -> None:
            workers.stop()
            await running
            await store.close()

        try:
            yield lambda count: runner.run(turn_of_tasks(ask, count))
        finally:
            runner.run(end())


async def _opened(address: str) -> Any:
    store = await quire.aio.open(address)
    await store.create_queue(REQUESTS, exist_ok=True)
    return store


@contextmanager
def joined(address: str) -> Iterator[RequestTurn]:
    """Three processes: who asks, who answers, and the owner."""
    with quire.open(address) as store:
        make_queues(store, "persistent")
        yield asking(store, None)


@contextmanager
def volatile(address: str) -> Iterator[RequestTurn]:
    """The same with queues in the owner's memory."""
    with quire.open(address) as store:
        make_queues(store, "volatile")
        yield asking(store, REPLIES)


def serve_quire(address: str) -> None:
    """Quire's `Workers`."""
    with quire.open(address) as store:
        workers = answering_workers(store)
        say_ready()
        workers.run()


# NATS ---------------------------------------------------------------------------------------------


@contextmanager
def nats_client(address: str) -> Iterator[RequestTurn]:
    """nats-py's `request`."""
    import nats

    with asyncio.Runner() as runner:
        client = runner.run(nats.connect(address))

        async def ask() -> object:
            reply = await client.request(REQUESTS, PAYLOAD, timeout=WAIT_SECONDS)
            return reply.data

        yield lambda count: runner.run(turn_of_tasks(ask, count))
        runner.run(client.close())


def serve_nats(address: str) -> None:
    """A subscription that responds."""
    import nats

    async def serve() -> None:
        client = await nats.connect(address)

        async def answer(request: Any) -> None:
            await request.respond(request.data)

        await client.subscribe(REQUESTS, cb=answer)
        await client.flush()
        say_ready()
        await asyncio.Event().wait()

    asyncio.run(serve())


# Redis --------------------------------------------------------------------------------------------


@contextmanager
def redis_client(address: str) -> Iterator[RequestTurn]:
    """redis-py: LPUSH to a list, BLPOP of a list for this reply alone."""
    import redis

    client = redis.Redis(unix_socket_path=address, socket_timeout=None)
    numbers = iter(range(1 << 62))

    def ask() -> object:
        own = b"reply-%d-%d" % (os.getpid(), next(numbers))
        client.lpush(REQUESTS, own + b" " + PAYLOAD)
        found: Any = client.blpop([own], timeout=WAIT_SECONDS)
        return found[1]

    yield turn_of(ask)
    client.close()


def serve_redis(address: str) -> None:
    """BRPOP, and an LPUSH to the list that the request names."""
    import redis

    client = redis.Redis(unix_socket_path=address, socket_timeout=None)
    say_ready()
    while True:
        found: Any = client.brpop([REQUESTS])
        where, _, payload = found[1].partition(b" ")
        client.lpush(where, payload)


# RabbitMQ -----------------------------------------------------------------------------------------


@contextmanager
def rabbit_client(address: str, *, durable: bool = False) -> Iterator[RequestTurn]:
    """pika: direct reply-to. Durable: the request is confirmed before its reply is waited for."""
    import pika

    connection = rabbit_connection(address)
    channel = connection.channel()
    queue = rabbit_queue(channel, durable)
    if durable:
        channel.confirm_delivery()
    replies: list[bytes] = []
    channel.basic_consume(
        "amq.rabbitmq.reply-to", lambda *found: replies.append(found[3]), auto_ack=True
    )
    properties = pika.BasicProperties(
        reply_to="amq.rabbitmq.reply-to", delivery_mode=2 if durable else 1
    )

    def ask() -> object:
        channel.basic_publish("", queue, PAYLOAD, properties)
        while not replies:
            connection.process_data_events(time_limit=None)
        return replies.pop()

    yield turn_of(ask)
    connection.close()


def rabbit_connection(address: str) -> Any:
    """Return a connection to the broker at the port."""
    import pika

    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", int(address), heartbeat=0)
    )


def rabbit_queue(channel: Any, durable: bool) -> str:
    """Made, if it is not there."""
    queue = f"{REQUESTS}-{durable}"
    channel.queue_declare(queue, durable=durable)
    return queue


def serve_rabbit(address: str, *, durable: bool = False) -> None:
    """A consumer that publishes the reply, and then acknowledges the request."""
    connection = rabbit_connection(address)
    channel = connection.channel()

    def answer(_: Any, delivery: Any, properties: Any, payload: bytes) -> None:
        channel.basic_publish("", properties.reply_to, payload)
        channel.basic_ack(delivery.delivery_tag)

    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(rabbit_queue(channel, durable), answer)
    say_ready()
    channel.start_consuming()


# As programs --------------------------------------------------------------------------------------

CLIENTS: dict[str, Callable[[str], AbstractContextManager[RequestTurn]]] = {
    "threads": threads,
    "coroutines": coroutines,
    "joined": joined,
    "volatile": volatile,
    "nats": nats_client,
    "redis": redis_client,
    "rabbit": rabbit_client,
    "rabbit durable": partial(rabbit_client, durable=True),
}
SERVERS: dict[str, Callable[[str], None]] = {  # of those who need one beside them
    "joined": serve_quire,
    "volatile": serve_quire,
    "nats": serve_nats,
    "redis": serve_redis,
    "rabbit": serve_rabbit,
    "rabbit durable": partial(serve_rabbit, durable=True),
}


def main(role: str, kind: str, address: str) -> None:
    """Run a client or a server of the kind."""
    if role == "server":
        SERVERS[kind](address)
        return
    with CLIENTS[kind](address) as turn:
        answer_orders(lambda order: turn(int(order)))


if __name__ == "__main__":
    main(*sys.argv[1:])

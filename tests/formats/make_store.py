"""Writes the stores whose files `test_formats` keeps: one archive for each of `KINDS`.

    python tests/formats/make_store.py tests/formats [KIND ...]

An archive that a release wrote is never written anew: a later layout gets archives of its own.

Every kind of place and record is in it: blocks in the journal and in the data file, packed and not,
all header columns, a large transaction's file, sealed record pages, partly read subscriptions, the
ledger; with `prepared` also transactions that are prepared, before and after the last checkpoint;
with `properties` queues have some, made and altered, and messages were handed out and counted;
with `topics` one keeps messages, and subscriptions were moved;
with `names` a queue is renamed, others have aliases, and the store is stopped for gets;
with `states` there are values, of prepared transactions too, and one that also moves subscriptions;
with `sections` records of each kind have further sections, and blocks in data files, in the
checkpoint and in the journal; messages were handed out and counted;
with `failures` messages come later, and the first of a sequence are read, in the checkpoint and in
the journal;
with `selectors` subscriptions ask for a part, a queue has an index, messages were removed by their
ids, and somebody listens under a name, in the checkpoint and in the journal;
with `streams` messages are streamed, in the checkpoint, in the journal and of a prepared put;
with `schedules` there are some that have put messages, in the checkpoint and in the journal;
with `policies` queues grow, let their oldest messages go, retry, keep, and have groups and orders,
each in the checkpoint and in the journal;
with `rows` a queue is typed, and got a column; its blocks are packed, in the journal and in a file;
with `requests` a queue keeps request ids, in the checkpoint, in the journal and of prepared puts;
with `files` the queues are in the second and third of three data files; with `definitions` queues
and subscriptions are made and dropped after the last checkpoint, too; with `full` that was made
on a full disk: it holds records itself, in a file longer than it, and their blocks are in a segment
of the journal before it, which has less space than its size.
"""

from __future__ import annotations

import datetime as dt
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from quire import QueueOptions, Retry, register_order
from quire.engine import EmbeddedStore as Store
from quire.env.os_env import OsEnv
from quire.env.os_file import OsFile
from quire.errors import DiskFull
from quire.ltds import LtdsWriter, new_id

SMALL: dict[str, Any] = {
    "segment_bytes": 1 << 16,
    "grow_bytes": 1 << 16,
    "inline_limit_bytes": 8192,
    "large_flush_bytes": 8192,
}


def fill(store: Store, topic_file: int = 0, work_file: int = 0) -> None:
    """Put, read, seal, and go on, so that the journal's tail holds records too."""
    store.create_queue(
        "topic", kind="topic", capacity=1 << 24, max_messages=100_000, data_file=topic_file
    )
    store.create_queue("work", kind="work", data_file=work_file)
    store.create_queue("dropped", kind="topic")
    store.subscribe("topic", "all")
    store.subscribe("topic", "some")
    for number in range(50):
        store.put("topic", b"single %d" % number)
    with store.transaction() as txn:
        txn.put_many("topic", [b"data block %d" % number * 20 for number in range(100)])
        txn.enter("ledger key", 7)
    with store.transaction(large=True) as txn:
        txn.put_many("work", [b"large %d" % number for number in range(1000)])
    store.admin.checkpoint()
    with store.transaction() as txn:
        txn.get_many("topic/some", max_messages=60)
        txn.get_many("work", max_messages=10)
    with store.transaction() as txn:
        header: dict[str, Any] = {
            "priority": 7, "group": 9, "sender": "sender", "correlation_id": "c-1",
            "reply_to": "work", "content_type": "text/plain", "expires_at": 4_000_000_000_000_000,
            "deliver_at": 1, "attributes": {"key": "value", "": "ü"},
        }  # fmt: skip
        txn.put_moved("topic", b"all fields", header)  # taken whatever the queue obeys
        txn.put("work", b"tail")
        txn.enter("ledger key", 8)
    store.drop_queue("dropped")


def fill_prepared(store: Store) -> None:
    """Prepared transactions: in the checkpoint, in the journal, and decided ones."""
    txn = store.transaction()
    txn.put_many("work", [b"checkpoint %d" % number for number in range(3)])
    txn.get_many("topic/all", max_messages=5)
    txn.enter("held key", 3)
    txn.prepare("in the checkpoint")
    store.admin.checkpoint()
    txn = store.transaction(large=True)
    txn.put_many("topic", [b"journal %d" % number for number in range(500)])
    txn.get_many("work", max_messages=4)
    txn.prepare("in the journal")
    txn = store.transaction()
    txn.enter("decided key", 1)
    txn.prepare("decided")
    store.prepared.commit("decided")
    txn = store.transaction()
    txn.put("work", b"undone")
    txn.prepare("undone")
    store.prepared.rollback("undone")


def fill_definitions(store: Store) -> None:
    """Queues and subscriptions that only the journal tells, and what only it takes away."""
    store.create_queue("late", kind="topic", capacity=1 << 20, max_messages=10)
    store.create_queue("gone", kind="work")
    store.put("gone", b"dropped with its queue")
    store.put("late", b"before the subscription")
    store.subscribe("late", "reader", start="latest")
    store.subscribe("late", "removed")
    store.put("late", b"after it")
    store.unsubscribe("late", "removed")
    store.drop_queue("gone")


def fill_properties(store: Store) -> None:
    """Queues with properties, in the checkpoint and in the journal, and deliveries that count."""
    store.create_queue("dead", kind="work", text="what nobody could use")
    store.create_queue(
        "tried", kind="work", max_deliveries=5, dead_letter="dead", properties={"team": "a"}
    )
    for number in range(4):
        with store.transaction() as txn:
            txn.put_moved("tried", b"%d" % number, {"priority": number % 2})
    for number in range(2):
        with store.transaction() as txn:
            txn.get_many("tried", 2 + number)
            txn.rollback()
        if not number:
            store.admin.checkpoint()
    store.alter_queue("tried", order="priority", capacity=1 << 20, text="altered")
    store.alter_queue("dead", puts=False)
    store.put("tried", b"4")


def fill_topics(store: Store) -> None:
    """What a topic keeps, subscriptions that were moved: in the checkpoint and in the journal."""
    store.create_queue("kept", kind="topic", keep_messages=6, keep_bytes=1 << 20)
    store.subscribe("kept", "alone", start="latest", exclusive=True)
    store.subscribe("kept", "reader")
    for number in range(10):
        store.put("kept", b"%d" % number)
        store.get_many("kept/reader")
    for position in (7, 5):
        with store.transaction() as txn:
            txn.put("kept", b"moved to %d" % position)
            txn.seek("kept/alone", position + 2)
            txn.seek("kept/reader", position)
        if position == 7:
            store.admin.checkpoint()


def fill_names(store: Store) -> None:
    """A queue that was renamed and aliases, in checkpoint and journal; the store is stopped."""
    store.create_queue("before", kind="work")
    store.admin.create_alias("first", "before")
    store.admin.create_alias("moved", "work")
    store.put("first", b"by an alias")
    store.admin.checkpoint()
    store.admin.rename_queue("before", "renamed")
    store.admin.create_alias("moved", "topic", replace=True)
    store.admin.create_alias("second", "moved")
    store.admin.create_alias("gone", "topic")
    store.admin.drop_alias("gone")
    store.admin.switch(gets=False)


def fill_streams(store: Store) -> None:
    """Streamed messages, in the checkpoint, in the journal and of a prepared transaction."""
    store.create_queue("films", kind="work", max_stream_bytes=5 << 20)
    film = b"film" * (600 << 10)
    store.put_stream("films", film, sender="sealed", attributes={"ü": ""})
    store.admin.checkpoint()
    store.put_stream("films", film[::-1])
    txn = store.transaction()
    txn.put_stream("films", film, sender="prepared")
    txn.prepare("film")


def fill_requests(store: Store) -> None:
    """Request ids of a queue that keeps three, in the checkpoint and in the journal."""
    store.create_queue("once", kind="work", dedup_count=3)
    for name in ("forgotten", "sealed", "ü"):
        store.put("once", name.encode(), request_id=name)
    store.admin.checkpoint()
    with store.transaction() as txn:
        txn.put("once", b"before it")
        txn.put("once", b"late", request_id="late")
        txn.enter("other key", 1)
    txn = store.transaction()
    txn.put("once", b"prepared", request_id="prepared")
    txn.prepare("once")


def fill_schedules(store: Store) -> None:
    """Schedules, one of which has put something, in the checkpoint and in the journal."""
    store.create_queue("puts", kind="work")
    every_second = "* * * * * *"
    for name in ("sealed", "late"):
        store.cron.create(
            name, "puts", every_second, b"\x00due", timezone="Europe/Berlin", missed="skip",
            priority=3, attributes={"ü": ""},
        )  # fmt: skip
        while store.cron.list()[0 if name == "late" else -1].last_us is None:
            time.sleep(0.05)
            store._maintenance.step()
        store.cron.alter(name, paused=True, cron="@yearly", sender="me")
        store.cron.create("gone", "puts", "@daily")
        if name == "sealed":
            store.admin.checkpoint()
        store.cron.drop("gone")


def fill_policies(store: Store) -> None:
    """What queues do by themselves, and in which order: in the checkpoint and in the journal."""
    register_order("golden", lambda headers: headers["group"].to_numpy())
    retry: Retry = {"delay": 3600.0, "growth": "linear", "cap": 7200.0, "jitter": 0.5}
    rules: dict[str, QueueOptions] = {
        "coded": {"order": "golden"},
        "dropping": {"overflow": "drop_oldest"},
        "giving": {"overflow": "dead_letter", "dead_letter": "letters"},
        "grouped": {"grouped": True, "dedup_count": 2, "ttl": 1e9},
        "grown": {"overflow": "wait", "grow_to": 1 << 20, "max_message_bytes": 1 << 17},
        "ordered": {"order": {"attribute": "due", "numeric": True}},
        "retried": {"retry": retry, "max_deliveries": 3, "dead_letter": "letters"},
        "sequenced": {"order": {"sequence": "seq", "wait": 3600.0, "most": 7}},
    }
    store.create_queue("letters", kind="work")
    for name, options in rules.items():
        most = 3 if name in ("dropping", "giving") else None
        store.create_queue(name, kind="work", capacity=1 << 16, max_messages=most, **options)
    store.create_queue("aged", kind="topic", keep_seconds=3600.0)
    store.create_queue("kept", kind="topic", keep_messages=2)
    store.subscribe("kept", "passing", durable=False)
    store.admin.create_alias("also", "grown")
    for turn in range(2):
        for number in range(4):
            name = f"{turn}.{number}"
            for queue in ("dropping", "giving", "kept", "retried"):
                store.put(queue, name.encode())
            store.put("grown", bytes(40_000))
            store.put("grouped", name.encode(), group_key=f"{number % 2}", request_id=name)
            store.put("ordered", name.encode(), attributes={"due": f"{9 - number}.{turn}"})
            order = {"seq": f"{(2, 1, 4, 3)[number] + 4 * turn}"}
            store.put("sequenced", name.encode(), sender="s", attributes=order)
            store.put("coded", name.encode(), group=7 - number)
        store.get_many("kept/passing")
        with store.transaction() as txn:
            retried = txn.get("retried")
            assert retried is not None
            txn.reject(retried, "not now")
            txn.set_value("golden", "turn", str(turn).encode())
        if not turn:
            store.admin.checkpoint()
    store.alter_queue("coded", text="altered")
    store.alter_queue("letters", order="priority")


def fill_states(store: Store) -> None:
    """Values of states, of prepared transactions too, in the checkpoint and in the journal."""
    store.create_queue("stepped", kind="topic")
    store.create_queue("taken", kind="work")
    store.subscribe("stepped", "some")
    for turn in range(2):
        for number in range(3):
            store.put("stepped", b"%d.%d" % (turn, number))
            store.put("taken", b"%d.%d" % (turn, number))
        with store.transaction() as txn:
            txn.set_value("step", "n", b"%d" % turn)
            txn.set_value("step", f"key {turn}", bytes(range(256)))
            txn.set_value("step", "ü", b"")
        with store.transaction() as txn:
            assert txn.get_value("step", "n") == b"%d" % turn
            txn.put("stepped", b"with a value")
            txn.get_many("taken", max_messages=2)
            txn.seek("stepped/some", 1 + 2 * turn)
            txn.enter("state key", turn)
            txn.set_value("step", "n", b"%d again" % turn)
            txn.set_value("step", "ü", None)
            txn.set_value("step", "never there", None)
        for xid in ("held", "set", "unset"):
            txn = store.transaction()
            txn.set_value("step", f"{xid} {turn}", xid.encode())
            txn.set_value("step", f"{xid} gone {turn}", None)
            txn.put("taken", b"prepared")
            txn.prepare(f"{xid} {turn}")
        store.prepared.commit(f"set {turn}")
        store.prepared.rollback(f"unset {turn}")
        if not turn:
            store.admin.checkpoint()


def fill_sections(store: Store) -> None:
    """Each kind of record, with all further sections, request ids and blocks in data files."""
    store.create_queue("parts", kind="topic", dedup_count=100)
    store.create_queue("counted", kind="work", max_deliveries=9, dead_letter="work")
    store.subscribe("parts", "some")
    for turn in range(2):
        for number in range(4):
            store.put("counted", b"%d.%d" % (turn, number))
            store.put("parts", b"%d.%d" % (turn, number))
        for xid in ("committed", "held", "set", "unset"):
            with store.transaction() as txn:
                txn.put_many("parts", [b"%s %d " % (xid.encode(), n) * 300 for n in range(10)])
                txn.put("parts", b"asked for " + xid.encode(), request_id=f"{xid} {turn}")
                txn.get("counted")
                txn.set_value("step", f"{xid} {turn}", xid.encode())
                txn.set_value("step", f"none {xid}", None)
                txn.enter(f"key {xid}", turn)
                if xid == "committed":
                    txn.seek("parts/some", 3 + 2 * turn)
                    continue
                txn.prepare(f"{xid} {turn}")
            if xid == "held" and not turn:
                store.prepared.rollback("held 0")
        with store.transaction(large=True) as txn:
            txn.put_many("parts", [b"of a large one"] * 100)
            txn.prepare(f"large {turn}")
        store.prepared.commit(f"set {turn}") if turn else store.prepared.rollback("set 0")
        if not turn:
            store.admin.checkpoint()
            store.prepared.commit("unset 0")


def fill_failures(store: Store) -> None:
    """What comes in a hundred years at the latest, and what is next of a sender."""
    retry: Retry = {"delay": 366 * 86400.0, "growth": "constant"}
    store.create_queue("failed", kind="work", retry=retry)
    store.create_queue("tried", kind="work", retry=retry, max_deliveries=9, dead_letter="work")
    store.create_queue("numbered", kind="work", order={"sequence": "n", "wait": 86400.0})
    for turn in range(2):
        for number in range(3):
            store.put("failed", b"%d.%d" % (turn, number))
            store.put("tried", b"%d.%d" % (turn, number))
        for name in ("failed", "tried"):
            with store.transaction() as txn:
                txn.get_many(name, max_messages=2)
                txn.rollback()
        with store.transaction() as txn:
            rejected = txn.get("failed")
            assert rejected is not None
            txn.reject(rejected, delay=86400.0)
        store.put("numbered", b"%d" % turn, sender="s", attributes={"n": str(turn + 1)})
        assert store.get("numbered") is not None
        if not turn:
            store.admin.checkpoint()


def fill_selectors(store: Store) -> None:
    """What subscriptions pass by is read; of an indexed queue messages are gone by their ids."""
    store.create_queue("asked", kind="topic")
    store.create_queue("found", kind="work", indexed=["colour", "sender"])
    store.subscribe("asked", "red", where="colour = 'red'")
    store.subscribe("asked", "all")
    store.listeners.add("found", name="hears", where="colour = 'red'", group=1).close()
    for turn in range(2):
        for number in range(4):
            pairs = {"colour": "blue" if number % 2 else "red"}
            store.put("asked", b"%d.%d" % (turn, number), attributes=pairs, group=number % 3)
            store.put("found", b"%d.%d" % (turn, number), attributes=pairs, group=number % 3)
        store._maintenance.step()
        assert store.get("asked/red") is not None
        with store.transaction() as txn:
            assert txn.remove("found", txn.describe("found", where="colour = 'blue'")[0].id)
        listener = store.listeners.add("found", name="hears", where="colour = 'red'", group=1)
        assert listener.get(0) is not None
        if turn:
            listener.close()
            continue
        assert listener.get(0) is None
        listener.close()
        store.admin.checkpoint()
        store.subscribe("asked", "late", where="colour <> 'red' OR JMSPriority > 0")


def fill_rows(store: Store) -> None:
    """A typed queue: rows packed, in a file and in the journal, before and after a column came."""
    store.create_queue("rows", kind="work", schema="id bigint not null, name string")
    for number in range(5):
        with store.transaction() as txn:
            row = {"id": number, "name": f"single {number}"}
            txn.put_moved("rows", row, {"priority": number % 2})
    store.admin.checkpoint()
    with store.transaction(large=True) as txn:
        txn.put_many("rows", [{"id": number} for number in range(5, 1000)])
    store.alter_queue("rows", schema="id bigint not null, name string, at timestamp")
    store.put("rows", {"id": 1000, "at": dt.datetime(2024, 2, 29, tzinfo=dt.UTC)})


class FullDisk(OsEnv):
    """A machine without room for another checkpoint."""

    def open_file(self, path: str, *, create: bool = False, **options: Any) -> OsFile:
        """Raises DiskFull where a checkpoint would be made."""
        if create and path.endswith(".qck.tmp") and "uncertain" not in path:
            raise DiskFull(f"{path}: no room")
        return super().open_file(path, create=create, **options)


FILLED: dict[str, Callable[[Store], None]] = {
    "prepared": fill_prepared,
    "definitions": fill_definitions,
    "properties": fill_properties,
    "topics": fill_topics,
    "names": fill_names,
    "streams": fill_streams,
    "requests": fill_requests,
    "schedules": fill_schedules,
    "policies": fill_policies,
    "rows": fill_rows,
    "states": fill_states,
    "sections": fill_sections,
    "failures": fill_failures,
    "selectors": fill_selectors,
}


KINDS = ("large", "zstd", "lz4", "files", "full", *FILLED)


def write(target: str, kind: str) -> None:
    """Write the archive of a store that was not closed, as after a crash."""
    compression = kind if kind in ("zstd", "lz4") else None
    files = 3 if kind == "files" else 1
    with tempfile.TemporaryDirectory() as folder:
        options = SMALL | {"segment_bytes": 1 << 20} if kind == "full" else SMALL
        store = Store.open(
            f"{folder}/store", background=False, ltds_compression=compression, data_files=files,
            **options,
        )  # fmt: skip
        fill(store, *([1, 2] if kind == "files" else []))
        if kind in FILLED:
            FILLED[kind](store)
        if kind == "full":
            store._opened.journal._advance(4096, relieving=False)
            with store.transaction() as txn:
                txn.enter("in another segment", 1)
            store._checkpointer._opened = replace(store._opened, env=FullDisk())
            store._checkpointer._make(sparing=True)
        fragment = LtdsWriter(
            OsEnv(),
            f"{folder}/store/ltds",
            store.integration.store_id,
            new_id(OsEnv(), foreign=True),
        )
        fragment.finish()
        store.abandon("its files are copied as they are")
        with tarfile.open(target, "w:gz", compresslevel=9) as archive:
            for path in sorted(Path(folder).rglob("*")):
                if path.name not in ("LOCK", "run"):
                    archive.add(path, arcname=str(path.relative_to(folder)), recursive=False)


if __name__ == "__main__":
    folder, *kinds = sys.argv[1:]
    for each in kinds or KINDS:
        write(f"{folder}/store-{each}.tar.gz", each)

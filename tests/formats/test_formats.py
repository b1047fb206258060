"""Stores that earlier releases wrote stay readable."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from quire import Template
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import KeyHeld, QueueDisabled
from quire.ltds import Compression, LtdsReader, codec_named, list_ids
from tests.formats.make_store import KINDS
from tests.kit.messages import payloads_in

ARCHIVES = sorted(Path(__file__).parent.glob("store-*.tar.gz"))

POLICIES = [
    *("aged", "coded", "dropping", "giving", "grouped", "grown", "kept", "letters", "ordered"),
    *("retried", "sequenced"),
]


def test_every_kind_has_an_archive() -> None:
    """All that `make_store` can fill a store with is kept as files, and nothing else."""
    assert [path.name for path in ARCHIVES] == sorted(f"store-{kind}.tar.gz" for kind in KINDS)


class NextDay(OsEnv):
    """The machine, a day ahead: what failed when an archive was made has come back since."""

    def now_us(self) -> int:
        """The wall clock, in microseconds since 1970."""
        return super().now_us() + 86_400_000_000


def compression_of(archive: Path) -> str | None:
    """The codec that the archive's name tells."""
    return next((name for name in ("zstd", "lz4") if name in archive.name), None)


def codecs_of(store: Store) -> set[Compression]:
    """Of the files of large transactions with messages in them."""
    directory = f"{store.path}/ltds"
    codecs = set()
    for ltds_id in list_ids(OsEnv(), directory):
        with LtdsReader(OsEnv(), directory, ltds_id, store.integration.store_id) as reader:
            if reader.count:
                codecs.add(reader.codec)
                first = reader.chunk_count
                length = reader.block_at(first)[0].length
                assert bool(reader.codec) == (len(reader.stored(first)) < length)
    return codecs


@pytest.mark.promise(8, 10)
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_a_store_of_every_released_format_opens(archive: Path, tmp_path: Path) -> None:
    """It is recovered, whole by `verify`, read to the last message, and goes on."""
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    with Store.open(str(tmp_path / "store"), background=False) as store:
        assert codecs_of(store) == {codec_named(compression_of(archive))}
        assert store.admin.verify().findings == []
        several = "files" in archive.name
        late = ["late"] * ("definitions" in archive.name)
        late += ["dead"] * ("properties" in archive.name)
        late += ["kept"] * ("topics" in archive.name)
        late += ["renamed"] * ("names" in archive.name)
        late += ["once"] * ("requests" in archive.name)
        late += ["films"] * ("streams" in archive.name)
        late += ["puts"] * ("schedules" in archive.name)
        late += POLICIES * ("policies" in archive.name)
        late += ["rows"] * ("rows" in archive.name)
        late += ["stepped", "taken"] * ("states" in archive.name)
        late += ["counted", "parts"] * ("sections" in archive.name)
        late += ["failed", "numbered"] * ("failures" in archive.name)
        late += ["asked", "found"] * ("selectors" in archive.name)
        assert [(info.name, info.data_file) for info in store.queues()] == [
            *((name, 0) for name in late),
            ("topic", 1 if several else 0),
            *(
                (name, 0)
                for name in ["tried"] * ("properties" in archive.name or "failures" in archive.name)
            ),
            ("work", 2 if several else 0),
        ]
        assert len(store.status()["data"]["files"]) == (3 if several else 1)
        for info in store.prepared.list():
            store.prepared.rollback(info.xid)
        assert store.integration.ledger("ledger key") == 8
        store.admin.switch(puts=True, gets=True)
        with store.transaction() as txn:
            everything = list(txn.get_many("topic/all", max_messages=1000))
            some = txn.get_many("topic/some", max_messages=1000).payloads()
            work = txn.get_many("work", max_messages=2000).payloads()
        payloads = [message.payload for message in everything]
        assert payloads[:50] == [b"single %d" % number for number in range(50)]
        assert payloads[50:150] == [b"data block %d" % number * 20 for number in range(100)]
        assert payloads[60:] == some
        assert work == [*(b"large %d" % number for number in range(10, 1000)), b"tail"]
        last = everything[-1]
        assert (last.payload, last.priority, last.group) == (b"all fields", 7, 9)
        assert (last.sender, last.correlation_id, last.reply_to) == ("sender", "c-1", "work")
        assert (last.content_type, last.deliver_at) == ("text/plain", 1)
        assert last.expires_at == 4_000_000_000_000_000
        assert dict(last.attributes) == {"key": "value", "": "ü"}
        assert store.put("work", b"goes on") > last.id
        assert store.admin.verify().findings == []


@pytest.mark.promise(7, 10)
def test_prepared_transactions_of_a_released_format(tmp_path: Path) -> None:
    """They wait as they did, with what they had got in flight, and can be committed."""
    with tarfile.open(Path(__file__).parent / "store-prepared.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    with Store.open(str(tmp_path / "store"), background=False) as store:
        assert [(info.xid, info.queues, info.messages) for info in store.prepared.list()] == [
            ("in the checkpoint", ("topic", "work"), 3),
            ("in the journal", ("topic", "work"), 500),
        ]
        assert store.integration.ledger("decided key") == 1
        assert [(s.name, s.delivered) for s in store.subscriptions("topic")] == [
            ("all", 5),
            ("some", 0),
        ]
        with store.transaction() as txn:
            work = txn.get_many("work", max_messages=2000).payloads()
        assert work == [*(b"large %d" % number for number in range(14, 1000)), b"tail"]
        for info in store.prepared.list():
            store.prepared.commit(info.xid)
        with store.transaction() as txn:
            everything = txn.get_many("topic/all", max_messages=2000).payloads()
            work = txn.get_many("work", max_messages=2000).payloads()
        assert everything[:2] == [b"single 5", b"single 6"]
        assert everything[-500:] == [b"journal %d" % number for number in range(500)]
        assert work == [b"checkpoint %d" % number for number in range(3)]
        assert store.integration.ledger("held key") == 3
        assert store.admin.verify().findings == []


@pytest.mark.promise(8)
def test_definitions_of_a_released_format(tmp_path: Path) -> None:
    """What the journal made and took away after the checkpoint; it is kept by the next one."""
    with tarfile.open(Path(__file__).parent / "store-definitions.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    catalogs = []
    for _ in range(2):
        with Store.open(str(tmp_path / "store"), background=False) as store:
            late = store.queue("late")
            assert (late.kind, late.capacity_bytes, late.max_messages) == ("topic", 1 << 20, 10)
            assert late.subscriptions == ("reader",)
            assert store.subscriptions("late")[0].position == 1
            assert store.browse("late/reader").payloads() == [b"after it"]
            catalogs.append(store.admin.catalog())
            store.admin.checkpoint()
    assert catalogs[0] == catalogs[1]
    entries = [(item.type, item.key, item.version, item.body["name"]) for item in catalogs[0]]
    assert entries == [
        ("queue", 1, 1, "topic"), ("queue", 2, 1, "work"), ("queue", 4, 1, "late"),
        ("subscription", 2, 1, "all"), ("subscription", 3, 1, "some"),
        ("subscription", 5, 1, "reader"),
    ]  # fmt: skip


@pytest.mark.promise(8)
def test_names_of_a_released_format(tmp_path: Path) -> None:
    """What queues are called, and that the store is stopped: after a recovery, and a checkpoint."""
    with tarfile.open(Path(__file__).parent / "store-names.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    for _ in range(2):
        with Store.open(str(tmp_path / "store"), background=False) as store:
            assert store.admin.aliases() == {
                "first": "renamed",
                "moved": "topic",
                "second": "topic",
            }
            assert store.admin.switch() == {"puts": True, "gets": False}
            assert store.browse("first").payloads() == [b"by an alias"]
            store.admin.checkpoint()


@pytest.mark.promise(8)
def test_properties_of_a_released_format(tmp_path: Path) -> None:
    """What queues were made with and altered to, and how often their messages were handed out."""
    with tarfile.open(Path(__file__).parent / "store-properties.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    found: list[tuple[bytes, int]] = []
    for _ in range(2):
        with Store.open(str(tmp_path / "store"), background=False) as store:
            tried, dead = store.queues(["tried", "dead"])
            assert (tried.max_deliveries, tried.dead_letter) == (5, "dead")
            assert (tried.order, tried.capacity_bytes, tried.text) == (
                "priority",
                1 << 20,
                "altered",
            )
            assert tried.properties == {"team": "a"}
            assert (dead.text, dead.puts) == ("what nobody could use", False)
            assert store.queue("work").puts
            with store.transaction() as txn:
                found = [(m.payload, m.delivery_count) for m in txn.get_many("tried")]
                txn.rollback()
            assert [payload for payload, _ in found] == [b"1", b"3", b"0", b"2", b"4"]
            store.admin.checkpoint()
    assert dict(found) == {b"0": 4, b"1": 4, b"2": 3, b"3": 2, b"4": 2}


@pytest.mark.promise(8)
def test_topics_of_a_released_format(tmp_path: Path) -> None:
    """What is kept though it was read, and where subscriptions were moved to."""
    with tarfile.open(Path(__file__).parent / "store-topics.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    kept = [b"%d" % number for number in range(5, 10)] + [b"moved to 7", b"moved to 5"]
    for _ in range(2):
        with Store.open(str(tmp_path / "store"), background=False) as store:
            info = store.queue("kept")
            assert (info.keep_messages, info.keep_bytes) == (6, 1 << 20)
            assert info.subscriptions == ("alone", "reader")
            assert [s.exclusive for s in store.subscriptions("kept")] == [True, False]
            assert store.browse("kept").payloads() == kept
            assert store.browse("kept/reader").payloads() == kept
            assert store.browse("kept/alone").payloads() == kept[2:]
            store.admin.checkpoint()
            assert store.admin.verify().findings == []


@pytest.mark.promise(8, 10)
def test_states_of_a_released_format(tmp_path: Path) -> None:
    """Values, those that prepared transactions hold, and what was committed with them."""
    with tarfile.open(Path(__file__).parent / "store-states.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    kept = {"key 0": bytes(range(256)), "key 1": bytes(range(256)), "n": b"1 again"}
    held = {"held 0", "held 1"}
    for _ in range(2):
        with Store.open(str(tmp_path / "store"), background=False) as store:
            values = store.states.items("step")
            assert values == kept | {"set 0": b"set", "set 1": b"set"} | {
                name: b"held" for name in values if name.startswith("held")
            }
            assert store.integration.ledger("state key") == 1
            assert {info.xid for info in store.prepared.list()} == held
            for name in held:
                with pytest.raises(KeyHeld), store.transaction() as txn:
                    txn.set_value("step", name, b"")
            (reader,) = store.subscriptions("stepped")
            assert reader.position == 3
            assert store.browse("taken").payloads()[:4] == [b"1.0", b"1.1", b"1.2", b"prepared"]
            assert store.admin.verify().findings == []
            if len(held) == 2:
                store.prepared.commit("held 0")
                held = {"held 1"}
            store.admin.checkpoint()


@pytest.mark.promise(8, 10)
def test_sections_of_a_released_format(tmp_path: Path) -> None:
    """What is undecided, in the checkpoint and in the journal, holds all that it did."""
    with tarfile.open(Path(__file__).parent / "store-sections.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    with Store.open(str(tmp_path / "store"), background=False) as store:
        assert [
            (info.xid, info.queues, info.messages, info.bytes) for info in store.prepared.list()
        ] == [
            ("large 0", ("parts",), 100, 3128),
            ("held 1", ("counted", "parts"), 11, 21318),
            ("unset 1", ("counted", "parts"), 11, 24319),
            ("large 1", ("parts",), 100, 3128),
        ]
        values = {"committed 0", "committed 1", "set 1", "unset 0"}
        assert store.states.items("step").keys() == values
        assert [s.position for s in store.subscriptions("parts")] == [5]
        assert [(s.position, s.delivered) for s in store.subscriptions("counted")] == [(3, 2)]
        taken = store.transaction()
        taken.enter("key held", 9)
        with pytest.raises(KeyHeld):
            taken.commit()
        taken.rollback()
        taken = store.transaction()
        taken.set_value("step", "held 1", b"mine")
        with pytest.raises(KeyHeld):
            taken.commit()
        taken.rollback()
        store.admin.checkpoint()
    with Store.open(str(tmp_path / "store"), background=False) as store:
        assert [info.messages for info in store.prepared.list()] == [100, 11, 11, 100]
        for info in store.prepared.list()[1:]:
            store.prepared.commit(info.xid)
        store.prepared.rollback("large 0")
        assert store.states.items("step").keys() == values | {"held 1", "unset 1"}
        assert store.integration.ledger("key held") == store.integration.ledger("key unset") == 1
        with store.transaction() as txn:
            assert txn.get_many("counted").payloads() == [b"1.2", b"1.3"]
            parts = txn.get_many("parts/some", max_messages=1000).payloads()
        for xid in (b"held", b"unset"):
            assert [b"%s %d " % (xid, n) * 300 for n in range(10)] == [
                payload for payload in parts if payload.startswith(xid)
            ][-10:]
        assert parts[-100:] == [b"of a large one"] * 100
        assert store.admin.verify().findings == []


@pytest.mark.promise(8, 10)
def test_rows_of_a_released_format(tmp_path: Path) -> None:
    """All are there with their columns, the one that came later too; and it goes on."""
    with tarfile.open(Path(__file__).parent / "store-rows.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    with Store.open(str(tmp_path / "store"), background=False) as store:
        assert store.queue("rows").schema == "id bigint not null, name string, at timestamp"
        store.put("rows", {"id": 1001})
        batch = store.transaction().get_arrow("rows", 2000)
        assert batch.column("id").to_pylist() == list(range(1002))
        assert batch.column("name").to_pylist()[:6] == [*(f"single {n}" for n in range(5)), None]
        at = batch.column("at").to_pylist()
        assert at[1000].isoformat() == "2024-02-29T00:00:00+00:00"
        assert at[:1000] + at[1001:] == [None] * 1001
        assert [each["priority"] for each in batch.column("_meta").to_pylist()][:4] == [0, 1, 0, 1]


@pytest.mark.promise(8)
def test_request_ids_of_a_released_format(tmp_path: Path) -> None:
    """Those of the checkpoint, of the journal, and of a prepared transaction; the next one too."""
    with tarfile.open(Path(__file__).parent / "store-requests.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    for prepared in (True, False):
        with Store.open(str(tmp_path / "store"), background=False) as store:
            assert store.queue("once").request_ids == 3
            by_payload = {message.payload.decode(): message.id for message in store.browse("once")}
            for name in ("sealed", "ü", "late")[not prepared :]:
                assert store.put("once", b"", request_id=name) == by_payload[name]
            if prepared:
                with pytest.raises(KeyHeld):
                    store.put("once", b"", request_id="prepared")
                store.prepared.commit("once")
            else:
                assert store.put("once", b"", request_id="prepared") == by_payload["prepared"]
            assert len(store.browse("once")) == 6
            store.admin.checkpoint()


@pytest.mark.promise(10)
def test_streams_of_the_archive(tmp_path: Path) -> None:
    """They are read chunk by chunk, and so is the one that is prepared, once it is committed."""
    with tarfile.open(Path(__file__).parent / "store-streams.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    film = b"film" * (600 << 10)
    with Store.open(str(tmp_path / "store"), background=False) as store:
        assert store.queue("films").max_stream_bytes == 5 << 20
        store.prepared.commit("film")
        sealed, late, prepared = store.browse("films")
        assert [m.sender for m in (sealed, late, prepared)] == ["sealed", None, "prepared"]
        assert dict(sealed.attributes) == {"ü": ""}
        assert [m.payload for m in (sealed, late, prepared)] == [film, film[::-1], film]
        payload = late.open()
        assert payload.seek(-4, 2) == len(film) - 4
        assert payload.read() == b"mlif"
        assert len(store.get_many("films")) == 3
        assert store.queue("films").used_bytes == 0


def test_schedules_of_the_archive(tmp_path: Path) -> None:
    """They are as they were made and altered, and know what they have put."""
    with tarfile.open(Path(__file__).parent / "store-schedules.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    with Store.open(str(tmp_path / "store"), background=False) as store:
        late, sealed = store.cron.list()
        assert (late.name, sealed.name) == ("late", "sealed")
        first, second = store.get_many("puts")[:2]
        assert (first.attributes["quire.schedule"], first.payload) == ("sealed", b"\x00due")
        assert second.attributes["quire.due"] == str(late.last_us)
        assert first.attributes["quire.due"] == str(sealed.last_us)
        for info in (late, sealed):
            assert (info.queue, info.cron, info.timezone) == ("puts", "@yearly", "Europe/Berlin")
            assert (info.missed, info.paused, info.payload) == ("skip", True, b"\x00due")
            assert info.message == {"priority": 3, "attributes": {"ü": ""}, "sender": "me"}
            assert store.integration.ledger(f"quire.schedule:{info.id}") == info.last_us
        assert store.cron.alter("late", paused=False).next_us is not None
        store.cron.drop("sealed")
        assert store.cron.create("new", "puts", "@daily").id > late.id


@pytest.mark.promise(8)
def test_policies_of_a_released_format(tmp_path: Path) -> None:
    """What each property is, and what it has done, after a recovery and after a checkpoint."""
    with tarfile.open(Path(__file__).parent / "store-policies.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    retry = {"delay": 3600.0, "growth": "linear", "cap": 7200.0, "jitter": 0.5}
    for is_first in (True, False):
        with Store.open(str(tmp_path / "store"), background=False, env=NextDay()) as store:
            found = {info.name: info for info in store.queues()}
            dropping, giving = found["dropping"], found["giving"]
            assert (dropping.overflow, dropping.max_messages) == ("drop_oldest", 3)
            assert (dropping.dropped, dropping.first_position) == (5, 5)
            assert (giving.overflow, giving.dead_letter, giving.first_position) == (
                *("dead_letter", "letters", 5),
            )
            grown, grouped = found["grown"], found["grouped"]
            assert (grown.overflow, grown.grow_to, grown.max_message_bytes) == (
                *("wait", 1 << 20, 1 << 17),
            )
            assert (grown.capacity_bytes, grown.messages) == (1 << 19, 8)
            assert (grouped.grouped, grouped.ttl, grouped.dedup_count) == (True, 1e9, 2)
            assert (grouped.request_ids, grouped.timed) == (2, True)
            assert found["retried"].retry == retry
            assert (found["aged"].keep_seconds, found["kept"].keep_messages) == (3600.0, 2)
            assert [s.durable for s in store.subscriptions("kept")] == [False]
            assert store.admin.aliases() == {"also": "grown"}
            assert store.states.get("golden", "turn") == b"1"
            orders = {info.name: info.order for info in found.values() if info.order != "commit"}
            assert orders == {
                "coded": "golden",
                "letters": "priority",
                "ordered": {"attribute": "due", "numeric": True},
                "sequenced": {"sequence": "seq", "wait": 3600.0, "most": 7},
            }
            check_policies(store)
            if is_first:  # as each get counts
                counts = [message.delivery_count for message in store.get_many("retried")]
                assert sorted(counts) == [1, 1, 1, 1, 1, 1, 2, 2]
            store.admin.checkpoint()
            assert store.admin.verify().findings == []


def check_policies(store: Store) -> None:
    """What can be got, in the order of each queue; nothing is read."""
    oldest = ["0.0", "0.1", "0.2", "0.3", "1.0"]
    expected = {
        "dropping": ["1.1", "1.2", "1.3"],
        "letters": oldest,
        "grouped": [*oldest, "1.1", "1.2", "1.3"],
        "ordered": ["0.3", "1.3", "0.2", "1.2", "0.1", "1.1", "0.0", "1.0"],
        "sequenced": ["0.1", "0.0", "0.3", "0.2", "1.1", "1.0", "1.3", "1.2"],
    }
    for name, payloads in expected.items():
        with store.transaction() as txn:
            assert [payload.decode() for payload in txn.get_many(name).payloads()] == payloads
            txn.rollback()
    assert [message.attributes["quire.reason"] for message in store.browse("letters")] == (
        ["overflow"] * 5
    )
    assert store.browse("kept").payloads() == [b"1.2", b"1.3"]
    assert store.put("grouped", b"", request_id="1.3") == store.browse("grouped")[-1].id
    with pytest.raises(QueueDisabled, match="order 'golden' is not known"):
        store.get("coded")


@pytest.mark.promise(8, 10)
def test_failures_of_a_released_format(tmp_path: Path) -> None:
    """What came of deliveries, and what is next of a sender, in the checkpoint and the journal."""
    with tarfile.open(Path(__file__).parent / "store-failures.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    for _ in range(2):
        with Store.open(str(tmp_path / "store"), background=False) as store:
            queues = {name: store._context.state.queue(name) for name in ("failed", "tried")}
            tried = {n: q.subscription(None).attempts.durable.rows() for n, q in queues.items()}
            assert [row[:4] for row in tried["tried"]] == [(0, 2, 1, 1), (2, 4, 1, 1)]
            assert tried["failed"][0][:4] == (0, 2, 1, 0)
            assert all(row[4] > 0 for rows in tried.values() for row in rows)
            numbered = store._context.state.queue("numbered").durable
            assert [list(s.numbers.values()) for s in numbered.ring] == [[3]]
            assert store.admin.verify().findings == []
            store.admin.checkpoint()


@pytest.mark.promise(8, 10)
def test_selectors_of_a_released_format(tmp_path: Path) -> None:
    """Who asks for a part has that, what was found is gone, and a listener's place is kept."""
    with tarfile.open(Path(__file__).parent / "store-selectors.tar.gz") as file:
        file.extractall(tmp_path, filter="data")
    for _ in range(2):
        with Store.open(str(tmp_path / "store"), background=False) as store:
            store._maintenance.step()
            assert {each.name: each.where for each in store.subscriptions("asked")} == {
                "all": None,
                "late": "colour <> 'red' OR JMSPriority > 0",
                "red": "colour = 'red'",
            }
            assert [payloads_in(store, f"asked/{each}") for each in ("red", "late")] == [
                *([b"1.0", b"1.2"], [b"0.1", b"0.3", b"1.1", b"1.3"]),
            ]
            assert len(payloads_in(store, "asked/all")) == 8
            assert store.queue("found").indexed == ("colour", "sender")
            left = [b"0.0", b"0.2", b"1.0", b"1.1", b"1.2", b"1.3"]
            assert payloads_in(store, "found") == left
            with store.transaction() as txn:
                blue = Template(attributes={"colour": "blue"})
                assert txn.read_many("found", where=blue).payloads() == [b"1.1", b"1.3"]
            assert [each.name for each in store.listeners.list()] == ["hears"]
            with store.listeners.add(
                "found", name="hears", where="colour = 'red'", group=1
            ) as listener:
                notice = listener.get(0)  # told once more: nobody has said that it was done with
                assert notice is not None
                with store.transaction() as txn:
                    heard = [txn.read("found", id=each) for each in notice.ids]
            assert [each.payload for each in heard if each is not None] == [b"1.0"]
            store.admin.checkpoint()
            assert store.admin.verify().findings == []

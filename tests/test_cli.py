"""The command line: what each command prints, and its exit status."""

from __future__ import annotations

import importlib.metadata
import io
import json
import math
import os
import re
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from quire import __version__
from quire.checksum import checksum
from quire.cli import main
from quire.cli.printing import age_words, size_words
from quire.cli.typed_values import _property_hints
from quire.definitions.properties import QueueOptions
from quire.engine import EmbeddedStore as Store
from quire.engine.namespaces.admin import AdminHandlers
from quire.errors import TransactionAborted
from quire.opening import open as open_store
from tests.kit.limits import Limits
from tests.kit.waiting import eventually
from tests.source_tree import ROOT


class Terminal:
    """Runs commands on one store, and keeps what they print."""

    def __init__(self, path: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self._capsys = capsys
        self.errors = ""

    def __call__(self, command: str, *arguments: str, status: int = 0) -> str:
        """The output of `quire COMMAND PATH ARGUMENTS`, which must end with `status`."""
        assert main([command, self.path, *arguments]) == status
        output, self.errors = self._capsys.readouterr()
        return output


@pytest.fixture
def quire(store_path: str, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """A store with a work queue "w", and a topic "t" with the subscription "a"."""
    terminal = Terminal(store_path, capsys)
    terminal("create-queue", "w", "--kind", "work", "--capacity", "64M", "--max-messages", "10")
    terminal("create-queue", "t", "--kind", "topic")
    terminal("subscribe", "t", "a", "--start", "earliest")
    return terminal


def test_what_is_put_into_a_queue_with_a_codec_is_a_value(quire: Terminal, store_path: str) -> None:
    """A text of the codec, with its content type; anything else is refused, or says what it is."""
    quire("create-queue", "orders", "codec=json")
    quire("put", "orders", '{"n": 1}', "2")
    quire("put", "orders", "apples", status=1)
    assert "codec 'json'" in quire.errors
    quire("put", "orders", "apples", "--content-type", "text/plain")
    with open_store(store_path) as store:
        assert [m.value for m in store.browse("orders")] == [{"n": 1}, 2, "apples"]


def test_a_queue_of_no_kind_and_a_topic_that_nobody_reads(
    store_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first is for work; of the second a put says what is the matter, in one line."""
    terminal = Terminal(store_path, capsys)
    terminal("create-queue", "orders")
    terminal("put", "orders", "apples")
    assert terminal("get", "orders") == "apples\n"
    terminal("create-queue", "news", "--kind", "topic")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        terminal("put", "news", "nothing")
    [line] = terminal.errors.splitlines()
    assert line.startswith("quire: warning: nobody reads the topic 'news'")


def test_a_script_makes_a_queue_each_time(quire: Terminal) -> None:
    """With --exist-ok what is there is fine; without, the error tells of it."""
    quire("create-queue", "w", status=1)
    assert "quire create-queue with --exist-ok is fine with that" in quire.errors
    quire("create-queue", "w", "--exist-ok", "--max-messages", "10", "--capacity", "64M")
    quire("create-queue", "w", "--exist-ok", "--max-messages", "11", status=1)
    assert "max_messages is 10, not 11" in quire.errors


def test_each_property_is_given_alike_in_create_and_alter(quire: Terminal, store_path: str) -> None:
    """By its type: sizes, times, texts, names, flags, JSON; and `null` where there may be none."""
    given = {
        "capacity=2G": ("capacity_bytes", 2 << 30), "max_messages=9": ("max_messages", 9),
        "max_message_bytes=64K": ("max_message_bytes", 65536), "timed=true": ("timed", True),
        "ttl=90s": ("ttl", 90.0), "max_ttl=2h": ("max_ttl", 7200.0), "text=5": ("text", "5"),
        "dead_letter=w": ("dead_letter", "w"), "max_deliveries=3": ("max_deliveries", 3),
        "indexed=a,b": ("indexed", ("a", "b")), "order=priority": ("order", "priority"),
        'retry={"delay": 2}': ("retry", None), "dedup_seconds=10m": ("dedup_seconds", 600.0),
        "overflow=wait": ("overflow", "wait"), "puts=false": ("puts", False),
    }  # fmt: skip
    quire("create-queue", "made", *given)
    quire("create-queue", "altered")
    quire("alter-queue", "altered", *given)
    with open_store(store_path) as store:
        made, altered = (store.queue(name) for name in ("made", "altered"))
    for word, (name, value) in given.items():
        assert getattr(made, name) == getattr(altered, name), word
        assert value is None or getattr(made, name) == value, word
    quire("alter-queue", "made", "ttl=null", "max_message_bytes=null", "dead_letter=null",
          "max_deliveries=null")  # fmt: skip
    with open_store(store_path) as store:
        found = store.queue("made")
    assert (found.ttl, found.max_message_bytes, found.dead_letter) == (None, None, None)
    quire("create-queue", "wrong", "ttl=soon", status=1)
    assert "ttl: 'soon' is no time" in quire.errors


def test_the_table_of_properties_knows_each(quire: Terminal) -> None:
    """Each option of a queue has a type that the command line reads."""
    hints = _property_hints()
    known = {"Size", "Duration", "str", "Sequence[str]", "None", "int", "bool", "float", "Order",
             "Mapping[str, str]", "Retry", "OverflowPolicy", "pa.Schema"}  # fmt: skip
    assert {part for hint in hints.values() for part in hint.split(" | ")} <= known
    assert {*QueueOptions.__annotations__, "kind", "capacity", "max_messages"} <= hints.keys()


def test_a_queue_that_is_not_empty_is_dropped_by_force(quire: Terminal) -> None:
    """It says what is there, or what has gone; an empty one goes at once."""
    quire("put", "w", "1", "2")
    quire("drop-queue", "w", status=2)
    assert "queue w has 2 messages: give --force" in quire.errors
    assert quire("drop-queue", "w", "--force") == "queue w is gone, with 2 messages\n"
    quire("drop-queue", "t", status=2)
    assert "the subscription a" in quire.errors
    quire("unsubscribe", "t", "a")
    assert quire("drop-queue", "t") == "queue t is gone\n"
    quire("drop-queue", "t", status=1)
    assert "there is no queue 't'" in quire.errors


def test_a_subscription_asks_for_a_part(quire: Terminal) -> None:
    """By a selector."""
    quire("subscribe", "t", "red", "--where", "colour = 'red'")
    quire("put", "t", "1", "--attribute", "colour=blue")
    quire("put", "t", "2", "--attribute", "colour=red")
    assert quire("get", "t/red", "-n", "9") == "2\n"
    quire("subscribe", "t", "wrong", "--where", "colour ==", status=1)


def test_no_command_works_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """What it had made would be gone with it: none says that it has made something."""
    for command in (["create-queue", "q"], ["put", "q", "1"], ["queues"], ["serve"]):
        assert main([command[0], ":memory:", *command[1:]]) == 1
        assert "in the memory of one process" in capsys.readouterr().err


def test_properties_are_given_and_altered(quire: Terminal) -> None:
    """A value is JSON, or else a text."""
    quire("create-queue", "p", "order=priority", "text=for the shop", 'properties={"team": "a"}')
    quire("alter-queue", "p", "default_priority=3", "capacity=8192", "text=")
    [found] = [queue for queue in json.loads(quire("queues", "--json")) if queue["name"] == "p"]
    assert (found["order"], found["default_priority"]) == ("priority", 3)
    assert (found["capacity_bytes"], found["text"]) == (8192, "")
    assert found["properties"] == {"team": "a"}


def test_a_queue_is_made_with_all_that_the_refusal_lists(
    quire: Terminal, store_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kind and limits can be given as NAME=VALUE, too; an option counts more."""
    quire(
        "create-queue", "p", "kind=topic", "capacity=64K", "max_messages=5", "--max-messages", "7"
    )
    [found] = [queue for queue in json.loads(quire("queues", "--json")) if queue["name"] == "p"]
    assert (found["kind"], found["capacity_bytes"], found["max_messages"]) == ("topic", 65536, 7)
    assert main(["create-queue", store_path, "r", "name=s"]) == 1
    assert "no property of a queue: there are kind, capacity" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["create-queue", "create-schedule", "alter-schedule"])
def test_a_word_without_a_value_is_refused_with_an_example_of_its_command(
    quire: Terminal, store_path: str, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """A schedule's example is one of schedules."""
    own = ["w", "@daily"] if command == "create-schedule" else []
    assert main([command, store_path, "n", *own, "books"]) == 1
    example = "max_deliveries=5" if command == "create-queue" else "payload=books"
    assert f"'books': give NAME=VALUE, as in {example}" in capsys.readouterr().err


def test_messages_go_in_and_come_out(quire: Terminal) -> None:
    """put takes arguments, get prints payloads and commits, browse only looks."""
    assert quire("put", "w", "one", "two", "Größe") == ""
    assert quire("browse", "w") == "one\ntwo\nGröße\n"
    assert quire("get", "w") == "one\n"
    assert quire("get", "w", "-n", "5") == "two\nGröße\n"
    assert quire("get", "w", "--wait", "0.01", status=3) == ""


def test_data_files(store_path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """create-queue makes a store of several, and assigns a queue; status and queues show it."""
    terminal = Terminal(store_path, capsys)
    terminal("create-queue", "a", "--data-files", "3", "--data-file", "2")
    terminal("create-queue", "b", "--data-file", "1")
    assert [(q["name"], q["data_file"]) for q in json.loads(terminal("queues", "--json"))] == [
        ("a", 2),
        ("b", 1),
    ]
    assert len(json.loads(terminal("status", "--json"))["data"]["files"]) == 3
    terminal("create-queue", "c", "--data-file", "3", status=1)
    assert "give 0 to 2, or None" in terminal.errors
    terminal("create-queue", "c", "--data-files", "2", status=1)
    assert "this one has 3" in terminal.errors
    assert terminal("verify")


def test_put_reads_lines(quire: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without payloads as arguments, each line of standard input is one, byte for byte."""
    lines = io.TextIOWrapper(io.BytesIO(b"a\n\n\xff\x00b"))
    monkeypatch.setattr("sys.stdin", lines)
    quire("put", "t")
    with open_store(quire.path) as store, store.transaction() as txn:
        assert txn.get_many("t/a").payloads() == [b"a", b"", b"\xff\x00b"]


def test_a_failed_put_puts_nothing(quire: Terminal) -> None:
    """One transaction: the queue holds ten messages, eleven do not fit."""
    quire("put", "w", *map(str, range(11)), status=1)
    assert quire.errors.startswith("quire: QueueFull: ")
    assert quire("browse", "w") == ""


def test_the_catalog_is_listed(quire: Terminal) -> None:
    """`catalog` as a table and as JSON."""
    table = quire("catalog").splitlines()
    assert table[0].split() == ["TYPE", "NUMBER", "VERSION", "ENTRY"]
    assert [line.split()[:3] for line in table[1:]] == [
        ["queue", "1", "1"], ["queue", "2", "1"], ["subscription", "2", "1"],
    ]  # fmt: skip
    entry = json.loads(quire("catalog", "--json"))[-1]
    assert entry["body"] == {"queue_id": 2, "name": "a", "start": 0}


def test_the_state_is_listed(quire: Terminal) -> None:
    """Its names, and the values of one; as JSON all of it, what is no UTF-8 in base64."""
    with open_store(quire.path) as store, store.transaction() as txn:
        txn.set_value("sold", "apples", b"2")
        txn.set_value("sold", "raw", b"\xff" * 50)
        txn.set_value("other", "k", b"")
    assert [line.split() for line in quire("state").splitlines()] == [
        ["NAME", "KEYS", "BYTES"], ["other", "1", "1"], ["sold", "2", "60"],
    ]  # fmt: skip
    lines = quire("state", "sold").splitlines()
    assert lines[1].split() == ["apples", "1", "'2'"]
    assert lines[2].split()[2] == repr("?" * 40).replace("?", r"\xff")
    said = json.loads(quire("state", "--json"))
    assert said[:2] == [
        {"name": "other", "key": "k", "value": ""}, {"name": "sold", "key": "apples", "value": "2"},
    ]  # fmt: skip
    assert said[2]["value_base64"].startswith("////")


def test_queues_are_listed(quire: Terminal) -> None:
    """A table, or JSON with everything."""
    quire("put", "t", "x")
    table = quire("queues").splitlines()
    assert table[0].split()[:4] == ["QUEUE", "KIND", "MESSAGES", "USED"]
    assert table[1].split()[:3] == ["t", "topic", "1"]
    assert table[1].split()[4:] == ["1073741824", "a", "(1)"]
    assert table[2].split()[:5] == ["w", "work", "0", "0", str(64 << 20)]
    queues = {queue["name"]: queue for queue in json.loads(quire("queues", "--json"))}
    assert queues["w"]["max_messages"] == 10
    assert queues["t"]["subscriptions"][0]["pending"] == 1


def test_browse_shows_all_fields(quire: Terminal) -> None:
    """With --json, one object a line; bytes that are no UTF-8 in base64: none look alike."""
    payloads = [b"\xff", b"\\xff", "Größe".encode(), b""]
    with open_store(quire.path) as store:
        for payload in payloads:
            store.put("w", payload, group=3, attributes={"k": "v"})
    messages = [json.loads(line) for line in quire("browse", "w", "--json").splitlines()]
    for message in messages:
        assert (message["group"], message["attributes"]) == (3, {"k": "v"})
    shown = [{k: v for k, v in m.items() if k.startswith("payload")} for m in messages]
    assert shown == [
        {"payload_base64": "/w=="},
        {"payload": "\\xff"},
        {"payload": "Größe"},
        {"payload": ""},
    ]


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_browse_tells_what_it_does_not_show(quire: Terminal, json_option: list[str]) -> None:
    """How many more there are, of a queue and of a subscription, where -n is not given either."""
    with open_store(quire.path) as store, store.transaction() as txn:
        txn.put_many("t", [b"x"] * 1500)
    for source in ("t", "t/a"):
        assert len(quire("browse", source, *json_option).splitlines()) == 1000
        assert quire.errors == "quire: 500 more are there: give -n 1500\n"
        assert len(quire("browse", source, "-n", "1500", *json_option).splitlines()) == 1500
        assert quire.errors == ""
    with open_store(quire.path) as store, store.transaction() as txn:
        txn.get_many("t/a", 700)
    quire("browse", "t/a", "-n", "300")
    assert quire.errors == "quire: 500 more are there: give -n 800\n"


def test_prepared_transactions_are_decided(quire: Terminal) -> None:
    """recover lists them; commit-prepared and rollback-prepared decide them, once."""
    assert quire("recover") == "XID  AGE  MESSAGES  BYTES  QUEUES\n"
    with open_store(quire.path) as store:
        for number in range(3):
            txn = store.transaction()
            txn.put_many("w", [b"%d" % number] * 2)
            txn.put("t", b"%d" % number)
            txn.prepare(f"order {number}")
    listed = json.loads(quire("recover", "--json"))
    assert [(p["xid"], p["messages"], p["queues"]) for p in listed] == [
        (f"order {number}", 3, ["t", "w"]) for number in range(3)
    ]
    lines = quire("recover").splitlines()
    assert [line.split("  ")[0] for line in lines] == ["XID", "order 0", "order 1", "order 2"]
    assert lines[1].endswith("t, w")
    assert quire("commit-prepared", "order 1") == ""
    assert quire("rollback-prepared", "order 0") == ""
    assert quire("browse", "w") == "1\n1\n"
    assert quire("commit-prepared", "order 0", status=1) == ""
    assert quire.errors.startswith("quire: TransactionNotFound: there is no prepared transaction")
    with open_store(quire.path, create=False):  # an owner: the commands join it
        assert [p["xid"] for p in json.loads(quire("recover", "--json"))] == ["order 2"]
        quire("commit-prepared", "order 2")
    assert quire("browse", "t") == "1\n2\n"


def test_status_tells_of_the_archive(quire: Terminal) -> None:
    """How much waits to be shipped, and where to."""
    with open_store(quire.path, create=False, share=False) as store:
        store.admin.set_archive("/proc/none/archive")
        store.put("w", b"1")
    lines = quire("status").splitlines()
    assert lines[2].startswith("archive /proc/none/archive: 1 record not shipped, ")


def test_lines_of_serve_as_json(quire: Terminal) -> None:
    """`--log-format json` has one object a line."""
    lines = [
        json.loads(line) for line in quire("serve", "--linger=0", "--log-format=json").splitlines()
    ]
    assert [line["logger"] for line in lines] == ["quire.opening"] * len(lines)
    assert lines[0]["message"].endswith(f"opens {quire.path}")


def test_status_says_what_waits_where_and_since_when(quire: Terminal) -> None:
    """With units: what waits, comes later, is in flight, cannot leave; the age of the oldest."""

    def rows() -> dict[str, list[str]]:
        lines = [re.split(r"  +", line.strip()) for line in quire("status").splitlines()[3:]]
        return {line[0]: line for line in lines}

    quire("create-queue", "dead")
    quire(
        "create-queue", "jobs", "timed=true", "max_deliveries=1", "dead_letter=dead", "capacity=2G"
    )
    quire("put", "jobs", "1", "2", "3", "4")
    quire("put", "jobs", "later", "--delay", "1h")
    quire("put", "t", "news")
    quire("alter-queue", "dead", "puts=false")
    with open_store(quire.path) as store, store.transaction() as txn:
        for _ in range(2):
            message = txn.get("jobs")
            assert message is not None
            txn.reject(message, "bad")
        assert txn.get("jobs") is not None
        eventually(lambda: rows()["jobs"][:6] == ["jobs", "work", "1", "1", "1", "2"])
        found = rows()
        txn.rollback()
    assert found["QUEUE"] == [
        "QUEUE", "KIND", "WAITING", "SCHEDULED", "IN FLIGHT", "DEAD", "OLDEST", "USED", "OF",
    ]  # fmt: skip
    assert re.fullmatch(r"(\d+[dhms] ?){1,2}", found["jobs"][6])
    assert (found["jobs"][7][-1], found["jobs"][8]) == ("B", "2 GiB")
    assert found["t/a"][:5] == ["t/a", "reader", "1", "0", "0"]
    assert found["dead"][6] == "-"


def test_what_stays_of_clients_is_listed(quire: Terminal) -> None:
    """Durable listeners, and how far they are; sessions, and what they have put and taken."""
    assert quire("sessions").split()[0] == "SESSION"
    with open_store(quire.path) as store:
        store.listeners.add("w", name="audit").close()
        session = store.session("anna")
        session.submit(session.begin("w", b"1"))
    [listener] = json.loads(quire("listeners", "--json"))
    assert (listener["name"], listener["source"], listener["behind"]) == ("audit", "w", 1)
    assert quire("listeners").splitlines()[1].split()[:3] == ["audit", "w", "put"]
    [found] = json.loads(quire("sessions", "--json"))
    assert (found["name"], found["last_enqueued"], found["last_dequeued"]) == ("anna", "1", "")
    assert (found["replies"], found["waiting"]) == ("quire.replies.anna", 0)
    assert quire("sessions").splitlines()[1].split()[0] == "anna"


def test_sizes_and_spans_are_words_for_a_person() -> None:
    """By the unit that fits."""
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 64 << 20: "64 MiB"}
    sizes |= {(5 << 30) + (1 << 29): "5.5 GiB", 3 << 40: "3 TiB", 2000 << 40: "2000 TiB"}
    assert {size: size_words(size) for size in sizes} == sizes
    ages = {-3.0: "0s", 0.4: "0s", 59: "59s", 60: "1m", 3723: "1h 2m", 90061: "1d 1h"}
    assert {age: age_words(age) for age in ages} == ages


def test_status_verify_and_checkpoint(quire: Terminal) -> None:
    """The state for people and for programs; verify says ok."""
    quire("put", "w", "1", "2")
    quire("disable", "--puts")
    first, second, third, _, head, *queues = quire("status").splitlines()
    assert first == f"{quire.path}: no process has it open"
    assert second.startswith("2 messages in 2 queues; 0 open transactions, 0 prepared; ")
    assert third == "puts are stopped in all queues: quire enable lets them in again"
    assert head.split()[:3] == ["QUEUE", "KIND", "WAITING"]
    rows = [line.split()[:3] for line in queues]
    assert rows == [["t", "topic", "0"], ["t/a", "reader", "0"], ["w", "work", "2"]]
    quire("enable")
    with open_store(quire.path, create=False):
        assert quire("status").startswith(f"{quire.path}: process {os.getpid()} owns it\n2 mess")
    assert quire("status", "w").startswith("name: w\nkind: work\n")
    assert json.loads(quire("status", "w", "--json"))["messages"] == 2
    assert quire("status", "v", status=1) == ""
    assert "QueueNotFound" in quire.errors
    quire("get", "w", "-n", "2")
    assert "queues:" in quire("status", "--all")
    assert json.loads(quire("status", "--json"))["queues"][0]["name"] == "t"
    found = re.fullmatch(r"record (\d+), state [0-9a-f]{32}\nok\n", quire("verify"))
    assert found
    assert int(found[1]) > 0
    line = quire("verify", "--contents").splitlines()[0]
    assert re.fullmatch(r"record \d+, state [0-9a-f]{32}, contents [0-9a-f]{32}", line)
    assert quire("checkpoint") == ""
    assert quire("compact").splitlines()[-1].endswith("bytes given back")
    assert json.loads(quire("compact", "--json"))["after"]["journal"] > 0


def test_verify_reports_damage(quire: Terminal) -> None:
    """Findings are printed, and the exit status is 1."""
    quire("put", "t", "x" * 1000)
    with open_store(quire.path) as store:
        assert isinstance(store, Store)
        report = store.admin.verify()
        assert report.ok
        report.findings.append("data/0.dat: page 3 is damaged")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AdminHandlers, "verify", lambda self, contents: report)
            assert quire("verify", status=1) == (
                "data/0.dat: page 3 is damaged\n1 findings of damage\n"
            )


def test_dump_lists_what_the_files_hold(quire: Terminal) -> None:
    """In words, or one JSON object a line; nothing is changed, with an owner or without."""
    quire("put", "w", "one", "t\x1bwo")
    files = [path for path in Path(quire.path).rglob("*") if path.is_file()]
    before = [path.read_bytes() for path in files]
    journal = quire("dump", "--journal").splitlines()
    assert [line.split(", ")[1] for line in journal if line.startswith("LSN")][-2:] == [
        "GENERATION", "COMMIT",
    ]  # fmt: skip
    shown = quire("dump", "--queue", "w", "--messages")
    assert "MESSAGES, position 0, transaction 1, 2 messages, first id 1" in shown
    assert [f"message: position {n}, id {n + 1}, " in shown for n in range(3)] == [
        True,
        True,
        False,
    ]
    assert "b't\\x1bwo'" in shown
    rows = [json.loads(line) for line in quire("dump", "--json").splitlines()]
    assert rows[0]["item"] == "store"
    assert [row["name"] for row in rows if row["item"] == "queue"] == ["w", "t"]
    assert before == [path.read_bytes() for path in files]
    with open_store(quire.path) as store:
        store.put("w", b"three")
        assert "b'three'" in quire("dump", "--queue", "w", "--messages", "--from", "0x2")
        with store.transaction() as txn:
            txn.put_many("w", [b"a", b"b"])
            last = quire("dump", "--queue", "w").splitlines()[-1]
            assert last.startswith(f"open: transaction {txn.id}, opened ")
            assert ", queues 'w', 2 messages, " in last
            assert "open:" not in quire("dump", "--queue", "t")
            assert "open:" not in quire("dump", "--offline")
            txn.rollback()
    for address in ("x", "quire://[", "quire+unix:///nowhere"):  # an owner that is none any more
        values = {"version": 2, "url": address, "epoch": "e", "process_id": 1}
        Path(quire.path, "run", "address").write_text(json.dumps(values))
        assert "open:" not in quire("dump")


def test_transactions_are_listed_and_aborted(quire: Terminal) -> None:
    """Whose they are and what they hold; one that was aborted can do nothing more."""
    assert quire("transactions").split() == [
        "ID", "AGE", "LEFT", "OWNER", "QUEUES", "MESSAGES", "BYTES", "SPILLED", "IN", "FLIGHT",
    ]  # fmt: skip
    with open_store(quire.path) as store:
        txn = store.transaction(owner="the importer", timeout=math.inf)
        txn.put("w", b"12345")
        head, row = quire("transactions").splitlines()
        for name, value in (
            ("ID", str(txn.id)), ("LEFT", "-"), ("OWNER", "the importer"), ("QUEUES", "w"),
            ("MESSAGES", "1"), ("BYTES", "21"), ("SPILLED", "0"), ("IN FLIGHT", "0"),
        ):  # fmt: skip
            assert row[head.index(name) :].startswith(value)
        (told,) = json.loads(quire("transactions", "--json"))
        assert (told["id"], told["queues"], told["seconds_left"]) == (txn.id, ["w"], None)
        shown = dict(
            line.split("  ", 1) for line in quire("transactions", str(txn.id)).splitlines()
        )
        assert shown.pop("AGE").strip().endswith("s")
        assert {name: value.strip() for name, value in shown.items()} == {
            "ID": str(txn.id), "OWNER": "the importer", "LEFT": "-", "LARGE": "no", "QUEUES": "w",
            "MESSAGES": "1", "BYTES": "21: 21 in memory", "IN FLIGHT": "0",
            "SOURCES": "-",
        }  # fmt: skip
        one = json.loads(quire("transactions", str(txn.id), "--json"))
        assert {**one, "age_seconds": 0} == {**told, "age_seconds": 0}
        assert quire("abort", str(txn.id)) == ""
        with pytest.raises(TransactionAborted):
            txn.commit()
        for command in ("abort", "transactions"):
            quire(command, str(txn.id), status=1)
            assert "quire: TransactionNotFound: there is no open transaction " in quire.errors


def test_dump_of_a_damaged_store(quire: Terminal) -> None:
    """Damage is told and the rest is listed; the exit status is 1."""
    quire("put", "w", "one")
    quire("checkpoint")
    (checkpoint,) = Path(quire.path, "checkpoint").glob("*.qck")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    shown = quire("dump", "--queue", "w", "--messages", status=1)
    assert f"DAMAGE: checkpoint/{checkpoint.name}, offset 0: " in shown
    assert "b'one'" in shown
    for path in Path(quire.path, "journal").iterdir():
        path.write_bytes(b"\0" * 4096)
    assert "lost: everything" in quire("dump", status=1)
    assert quire("dump", "--queue", "w", status=1)
    assert "quire: InvalidArgument: " not in quire.errors


def test_dump_of_a_newer_release_is_no_damage(quire: Terminal) -> None:
    """A checkpoint of a version that this release does not know: one line says what to do."""
    quire("put", "w", "one")
    quire("checkpoint")
    (checkpoint,) = Path(quire.path, "checkpoint").glob("*.qck")
    data = bytearray(checkpoint.read_bytes())
    struct.pack_into("<H", data, 12, 99)
    struct.pack_into("<Q", data, 0, checksum(memoryview(data)[8:]))
    checkpoint.write_bytes(data)
    for options in ([], ["--queue", "w"], ["--journal"], ["--json"]):
        assert quire("dump", *options, status=1) == ""
        assert quire.errors.startswith("quire: StoreVersion: ")
        assert "format version 99, this release reads 1: " in quire.errors
        assert quire.errors.endswith("use a newer release\n")


def test_dump_refuses_what_it_cannot_do(quire: Terminal, tmp_path: Path) -> None:
    """A path without a store, a queue that is not there, messages of no queue."""
    assert main(["dump", str(tmp_path / "none")]) == 1
    quire("dump", "--queue", "none", status=1)
    assert "QueueNotFound: there is no queue 'none': give one of " in quire.errors
    quire("dump", "--messages", status=1)
    assert "InvalidArgument" in quire.errors
    with pytest.raises(SystemExit, match="2"):
        main(["dump", quire.path, "--from", "here"])


def test_queues_and_subscriptions_are_removed(quire: Terminal) -> None:
    """What was made can be removed."""
    quire("unsubscribe", "t", "a")
    quire("drop-queue", "t")
    assert len(quire("queues").splitlines()) == 2


def test_schedules_are_made_listed_changed_and_dropped(quire: Terminal) -> None:
    """With what a put may give, as NAME=VALUE."""
    made = "timezone=Europe/Berlin", "priority=3", 'attributes={"a": "b"}', "payload=x=y"
    quire("create-schedule", "s", "w", "30 2 * * MON-FRI", *made)
    [row] = quire("schedules").splitlines()[1:]
    assert row.split()[:3] == ["s", "w", "30"]
    assert "Europe/Berlin" in row
    [shown] = json.loads(quire("schedules", "--json"))
    assert (shown["payload_base64"], shown["message"]["priority"]) == ("eD15", 3)
    quire("alter-schedule", "s", "paused=true", "cron=@daily")
    assert quire("schedules").split()[-2:] == ["paused", "-"]
    quire("alter-schedule", "s", "colour=red", status=1)
    assert "colour" in quire.errors
    quire("create-schedule", "s", "w", "@daily", status=1)
    assert "ScheduleExists" in quire.errors
    assert quire("catalog").count("schedule") == 1
    quire("drop-schedule", "s")
    assert json.loads(quire("schedules", "--json")) == []


def test_queues_are_purged_renamed_and_moved_from(quire: Terminal) -> None:
    """Queues are purged, renamed and moved from, and have aliases."""
    quire("put", "w", "0", "1", "2", "3", "4")
    quire("rename-queue", "w", "work")
    quire("create-alias", "w", "work")
    assert quire("aliases").split() == ["ALIAS", "QUEUE", "w", "work"]
    quire("create-queue", "other", "--kind", "work")
    assert quire("move", "w", "other", "-n", "2") == "2 messages moved\n"
    assert quire("move", "work", "other") == "3 messages moved\n"
    assert quire("move", "work", "other", status=3) == "0 messages moved\n"
    assert quire("browse", "other").split() == ["0", "1", "2", "3", "4"]
    quire("create-alias", "w", "other", "--replace")
    assert json.loads(quire("aliases", "--json")) == {"w": "other"}
    assert quire("purge", "w") == "5 messages removed\n"
    quire("put", "t", "m")
    assert quire("purge", "t/a") == "1 messages removed\n"
    quire("drop-alias", "w")
    quire("purge", "w", status=1)
    assert "QueueNotFound" in quire.errors


def test_the_store_is_stopped(quire: Terminal) -> None:
    """For puts, gets or both, until it is let in again."""
    assert quire("disable", "--puts") == "puts: off\ngets: on\n"
    quire("put", "w", "m", status=1)
    assert "the store is stopped for puts" in quire.errors
    assert quire("disable") == "puts: off\ngets: off\n"
    assert quire("enable") == "puts: on\ngets: on\n"
    quire("put", "w", "m")


def test_commands_join_the_owner(quire: Terminal) -> None:
    """While a program has the store open, the commands work on the same store."""
    with open_store(quire.path) as store:
        quire("put", "w", "x")
        assert store.queue("w").messages == 1
        assert quire("get", "w") == "x\n"
        assert store.queue("w").messages == 0


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["get", "nowhere"], "QueueNotFound"),
        (["put", "nowhere", "x"], "QueueNotFound"),
        (["put", "t/a", "x"], "InvalidArgument"),
        (["create-queue", "w"], "QueueExists"),
        (["alter-queue", "nowhere", "puts=false"], "QueueNotFound"),
        (["alter-queue", "w", "order"], "InvalidArgument"),
        (["alter-queue", "w", "order=yes"], "InvalidArgument"),
        (["create-queue", "x", "nonsense=1"], "InvalidArgument"),
        (["subscribe", "t", "b", "--start", "middle"], "InvalidArgument"),
    ],
)
def test_an_error_is_one_line(quire: Terminal, command: list[str], error: str) -> None:
    """On standard error, with the error's name; the exit status is 1."""
    assert quire(command[0], *command[1:], status=1) == ""
    assert quire.errors.startswith(f"quire: {error}: ")
    assert quire.errors.count("\n") == 1


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    "wrong",
    [["a/b"], ["q", "--capacity", "1"], ["q", "ttl=never"], ["q", "--data-files", "17"]],
)
def test_no_store_is_made_for_a_queue_that_cannot_be(
    store_path: str, capsys: pytest.CaptureFixture[str], wrong: list[str]
) -> None:
    """What create-queue refuses leaves nothing behind."""
    terminal = Terminal(store_path, capsys)
    terminal("create-queue", *wrong, status=1)
    assert terminal.errors.startswith("quire: InvalidArgument: ")
    assert not Path(store_path).exists()


def test_a_subscription_begins_where_that_of_a_program_does(quire: Terminal) -> None:
    """With the earliest message, unless --start says otherwise."""
    quire("put", "t", "one")
    quire("subscribe", "t", "all")
    quire("subscribe", "t", "new", "--start", "latest")
    assert quire("browse", "t/all") == "one\n"
    assert quire("browse", "t/new") == ""


def test_a_subscription_is_moved(quire: Terminal) -> None:
    """To a position, a time or a message, as `seek` of a program does."""
    quire("alter-queue", "t", "keep_forever=true")
    quire("put", "t", "one", "two")
    assert quire("get", "t/a", "-n", "2") == "one\ntwo\n"
    for place in ("1", "id:2"):
        quire("seek", "t/a", place)
        assert quire("browse", "t/a") == "two\n"
    for place in ("earliest", "2020-01-31T12:00:00", "1500000000.5"):
        quire("seek", "t/a", place, "--wait", "1")
        assert quire("browse", "t/a") == "one\ntwo\n"
    quire("subscribe", "t", "x", "--exclusive", "--start", "2020-01-31")
    assert quire("browse", "t/x") == "one\ntwo\n"


def test_no_command_makes_a_store_by_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only create-queue and serve make one."""
    for command in (
        ["status"],
        ["queues"],
        ["dump"],
        ["put", "q", "x"],
        ["verify"],
        ["checkpoint"],
    ):
        path = str(tmp_path / "none")
        assert main([command[0], path, *command[1:]]) == 1
        assert "StoreNotFound" in capsys.readouterr().err
    assert main(["serve", str(tmp_path / "none"), "--no-create"]) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """By the package, by the command and by what was installed: one and the same."""
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"quire {__version__}\n"
    installed = importlib.metadata.packages_distributions()["quire"]
    assert {importlib.metadata.version(name) for name in installed} == {__version__}


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """argparse's exit status 2, with what is wrong."""
    for arguments in ([], ["fly"], ["put"], ["create-queue", "p", "q", "--capacity", "much"]):
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
    assert "give bytes, or 64K" in capsys.readouterr().err


def test_serving_a_store_that_is_owned(quire: Terminal) -> None:
    """The exit status tells a starter that another owner was first."""
    with open_store(quire.path):
        quire("serve", "--no-wait", status=75)
    assert "StoreLocked" in quire.errors


def test_what_cannot_be_printed_is_not_taken(quire: Terminal) -> None:
    """`quire get | head` that goes away leaves the messages in the queue."""
    with open_store(quire.path) as store:
        store.create_queue("big", kind="work")
        with store.transaction() as txn:
            txn.put_many("big", [b"x" * 1000] * 1000)
        process = subprocess.Popen(
            [sys.executable, "-m", "quire", "get", quire.path, "big", "-n", "1000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdout is not None
        assert process.stdout.read(1000)
        process.stdout.close()
        assert process.wait(300) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
        assert store.queue("big").messages == 1000


def test_nothing_is_taken_when_there_is_no_standard_output(
    quire: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `quire get PATH w >&-`."""
    quire("put", "w", "kept")
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", None)
        quire("get", "w", status=1)
    assert quire.errors == "quire: standard output is closed\n"
    assert quire("get", "w") == "kept\n"


def test_a_put_where_standard_input_is_closed(
    quire: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `quire put PATH w <&-`, or from a service that has none."""
    monkeypatch.setattr("sys.stdin", None)
    for words in ([], ["--stream"]):
        quire("put", "w", *words, status=1)
        assert "standard input is closed: give the payloads on the line" in quire.errors
    quire("put", "w", "1")
    assert quire("get", "w") == "1\n"


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "soon"])
def test_times_that_are_none(
    quire: Terminal, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """A server that would never end, or at once, is not started."""
    with pytest.raises(SystemExit):
        main(["serve", quire.path, f"--linger={text}"])
    assert "give seconds" in capsys.readouterr().err


def test_files_are_put_as_streams(
    quire: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    """One message each, or all of standard input as one; they are printed piece by piece."""
    limits(CHUNK_BYTES=4)
    film = tmp_path / "film"
    film.write_bytes(b"line\n" * 5)
    quire("put", "w", str(film), str(film), "--stream")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"from\nelsewhere")))
    quire("put", "w", "--stream")
    assert quire("browse", "w") == "line\n" * 5 + "\n" + "line\n" * 5 + "\n" + "from\nelsewhere\n"
    assert quire("get", "w") == "line\n" * 5 + "\n"
    quire("put", "w", f"{tmp_path}/none", "--stream", status=1)
    assert "InvalidArgument: file" in quire.errors
    assert "none' cannot be read (No such file or directory): give one" in quire.errors

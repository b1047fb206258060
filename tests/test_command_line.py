"""The command line as it is typed: options anywhere, hints that are commands, how it ends."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.cli import main
from quire.cli.command import ARCHIVE, USERS, Command, ExitStatus
from quire.cli.command_line import CommandParser, read_line
from quire.cli.command_table import NAMES, SUBJECTS, commands
from quire.cli.error_hints import in_commands
from quire.interface.store import Store
from quire.interface.transaction import Transaction
from quire.opening import open as open_store
from tests.source_tree import ROOT, all_sources, nodes, parsed
from tests.test_wrong_uses import subjects


class Terminal:
    """Runs commands on one store: "put w x --priority 3" is `quire put PATH w x --priority 3`."""

    def __init__(self, path: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        self.path = path
        self._capture = capfdbinary
        self.errors = ""

    def __call__(self, line: str, status: int = 0) -> str:
        return self.raw(line, status).decode()

    def raw(self, line: str, status: int = 0) -> bytes:
        """The bytes that it prints."""
        name, *rest = shlex.split(line)
        try:
            ended = main([name, self.path, *rest])
        except SystemExit as end:
            ended = int(end.code or 0)
        output, errors = self._capture.readouterr()
        self.errors = errors.decode()
        assert ended == status, self.errors
        return output


@pytest.fixture
def quire(store_path: str, capfdbinary: pytest.CaptureFixture[bytes]) -> Terminal:
    """A store with a work queue "w" that obeys times and priorities, and a topic "t"."""
    terminal = Terminal(store_path, capfdbinary)
    terminal("create-queue w --kind work timed=true order=priority grouped=true dedup_count=10")
    terminal("create-queue t --kind topic")
    return terminal


# The line


WORDS = ["get", "PATH", "w/s", "-n", "3", "--json", "--wait=1.5"]


def test_options_stand_anywhere() -> None:
    """In whatever order the words come, as long as an option's value follows it."""
    parts = [["PATH"], ["w/s"], ["-n", "3"], ["--json"], ["--wait=1.5"]]
    wanted = vars(read_line(WORDS))
    assert (wanted["count"], wanted["json"], wanted["wait"]) == (3, True, 1.5)
    for order in itertools.permutations(range(5)):
        if order.index(0) > order.index(1):
            continue
        line = [word for part in order for word in parts[part]]
        assert vars(read_line(["get", *line])) == wanted, line
    assert vars(read_line(["--json", "-n3", "--wait", "1.5", "get", "PATH", "w/s"])) == wanted


def test_what_begins_with_a_dash_goes_behind_two() -> None:
    """Numbers need none; an option's value may begin with one, too."""
    given = read_line(
        ["put", "PATH", "w", "-5", "--sender", "-x", "--", "-y", "--stream", "--json"]
    )
    assert given.payloads == ["-5", "-y", "--stream", "--json"]
    assert (given.sender, given.stream) == ("-x", False)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("gte PATH w", "there is no command gte: did you mean quire get?"),
        ("create_queue PATH w", "there is no command create_queue: did you mean quire create-que"),
        ("nonsense", "there is no command nonsense; quire --help lists them"),
        ("graph lst PATH", "there is no command graph lst: did you mean quire graph ls?"),
        ("graph", "graph goes on with a command: give one of graph ls, "),
        ("get PATH w --jsn", "quire get: there is no option --jsn: did you mean --json?"),
        ("get PATH w --count 3", "there is no option --count; what begins with a dash"),
        (
            "put PATH w -x",
            "there is no option -x; what begins with a dash and is no option goes be",
        ),
        ("get PATH", "quire get: the following arguments are required: SOURCE"),
        ("get PATH w x", "quire get: 'x' is too much: put words with spaces between quotes"),
        ("get PATH w -n", "argument -n: expected one argument"),
        ("get PATH w -n 0", "argument -n: '0' is no count: give a number of 1 or more"),
        ("get PATH w -n two", "'two' is no count: give a number of 1 or more"),
        ("get PATH w --wait -1", "'-1' is no time: give seconds, 0 or more, or 90s, 10m, 2h, 7d"),
        ("get PATH w --json --raw", "argument --raw: not allowed with argument --json"),
        ("put PATH w x --priority high", "'high' is no number: give one as 3"),
        ("put PATH w x --attribute red", "'red': give NAME=VALUE, as colour=red"),
        ("put PATH w x --delay soon", "'soon' is no time: give seconds, 0 or more, or 90s"),
        ("put PATH w x --deliver-at soon", "'soon' is no point in time: give one as 2025-01-31T"),
        ("create-queue PATH w --capacity 1X", "'1X' is no size: give bytes, or 64K, 512M, 2G"),
        (
            "create-queue PATH w --kind pile",
            "argument --kind: invalid choice: 'pile' (choose from ",
        ),
        ("cancel PATH w first", "'first' is no number: give one as 3"),
        ("dump PATH --from here", "'here' is no LSN or position: give 4096 or 0x1000"),
        ("verify", "quire verify: the following arguments are required: PATH"),
    ],
)
def test_a_line_that_is_wrong(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what is wrong, and what to type; nothing is done, and the status is 2."""
    with pytest.raises(SystemExit) as end:
        main(shlex.split(line))
    assert end.value.code == ExitStatus.USAGE
    shown, *rest = capsys.readouterr().err.splitlines()
    assert said in shown
    assert all(line.startswith("usage: ") for line in rest)


@pytest.mark.parametrize("command", commands().values(), ids=lambda command: str(command.name))
def test_the_help_of_a_command(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """It names all of its arguments, and what it says of lines to try can be typed."""
    for line in (f"{command.name} --help", f"help {command.name}"):
        with pytest.raises(SystemExit) as end:
            main(line.split())
        assert not end.value.code
        text = capsys.readouterr().out
        assert text.startswith(f"usage: quire {command.name} {command.place[0]}")
        assert max(map(len, text.splitlines())) <= 100
        for option in CommandParser(command).option_names():
            assert option in text
    for example in re.findall(r"^  quire (.*)$", command.more, re.MULTILINE):
        assert read_line(shlex.split(re.sub(" [<>] .*", "", example))).run


def test_the_help_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command is listed, once, and each exit status; without a command it is an error."""
    for line, status in ((["--help"], 0), (["help"], 0), ([], ExitStatus.USAGE)):
        with pytest.raises(SystemExit) as end:
            main(line)
        assert end.value.code == status
        text = "".join(capsys.readouterr())
        for subject, several in SUBJECTS.items():
            assert f"\n{subject}:\n" in text
            for name in (name for _, names in several for name in names.split(", ")):
                assert text.count(f"\n  {name} ") == 1
        statuses = re.findall(r"^  (\d+) ", text.partition("exit status:")[2], re.MULTILINE)
        assert [int(found) for found in statuses] == [status.value for status in ExitStatus]


def test_the_table_names_all_commands_of_its_modules() -> None:
    """In their order: a command that it does not name could not be typed."""
    for several in SUBJECTS.values():
        for module, names in several:
            assert [command.name for command in module.COMMANDS] == names.split(", ")
    assert len(set(NAMES)) == len(NAMES) == len(commands())


# What commands do


def test_messages_are_put_with_headers(quire: Terminal) -> None:
    """Each option arrives as what it is called."""
    quire("put w x --priority 3 --group-key g --attribute a=b --attribute c=d=e --ttl 1h --group 2")
    quire("put w y --correlation-id c --reply-to t --content-type text/plain --sender me")
    quire("put w z --deliver-at 2199-01-01T00:00:00+00:00 --expires-at 2199-02-01T00:00:00+00:00")
    first, second, third = map(json.loads, quire("browse w --json").splitlines())
    assert (first["priority"], first["group"]) == (3, 2)
    assert first["attributes"] == {"a": "b", "c": "d=e", "quire.group_key": "g"}
    assert 0 < first["expires_at"] - first["time"] <= 3600_000_000
    names = ("correlation_id", "reply_to", "content_type", "sender")
    assert [second[name] for name in names] == ["c", "t", "text/plain", "me"]
    assert third["deliver_at"] == 7226582400_000_000
    assert third["expires_at"] - third["deliver_at"] == 31 * 86400_000_000
    assert quire("get w") == "x\n"
    quire("purge w")
    quire("put w long-ago --deliver-at 5")
    assert json.loads(quire("browse w --json"))["deliver_at"] == 5_000_000


def test_a_put_that_is_repeated_is_known(quire: Terminal) -> None:
    """By its request id, which is for one message."""
    for _ in range(2):
        quire("put w --request-id r x")
    assert quire("browse w") == "x\n"
    quire("put w --request-id r x y", status=1)
    assert "--request-id is the name of one put: give one payload with it" in quire.errors


def test_payloads_come_as_they_are(quire: Terminal) -> None:
    """--raw adds nothing, --json is an object a line; both say 3 where there is nothing."""
    payload = bytes(range(256)) * 5000
    with open_store(quire.path) as store:
        store.put("w", payload)
        store.put("w", "Größe".encode())
    assert quire.raw("browse w --raw") == payload + "Größe".encode()
    assert quire.raw("get w --raw") == payload
    (message,) = map(json.loads, quire("get --json w -n 5").splitlines())
    assert (message["payload"], message["delivery_count"]) == ("Größe", 1)
    for form in ("--json", "--raw", ""):
        assert quire(f"get w {form}", ExitStatus.NOTHING) == ""


def test_what_is_not_due_is_listed_and_cancelled(quire: Terminal) -> None:
    """`scheduled` tells the id that `cancel` takes; once it is gone the status is 3."""
    quire("put w late --delay 2h")
    quire("put w later --delay 1d")
    quire("put w now")
    head, first, second = quire("scheduled w").splitlines()
    assert head.split() == ["ID", "DUE", "BYTES", "PAYLOAD"]
    assert first.split()[2:] == ["4", "'late'"]
    assert [json.loads(line)["payload"] for line in quire("scheduled w --json").splitlines()] == [
        "late",
        "later",
    ]
    number = second.split()[0]
    assert quire(f"cancel w {number}") == ""
    assert quire(f"cancel w {number}", ExitStatus.NOTHING) == ""
    assert f"no message {number} waits in w: it was due, or there is none" in quire.errors
    assert quire("browse w").split() == ["late", "now"]


def test_dead_letters_are_put_back(quire: Terminal) -> None:
    """Where they came from, or elsewhere; 3 where there is none."""
    quire("create-queue dead --kind work")
    quire("alter-queue w max_deliveries=1 dead_letter=dead")
    quire("put w one two three")
    with open_store(quire.path) as store, store.transaction() as txn:
        for message in txn.get_many("w"):
            txn.reject(message)
    assert quire("browse dead").split() == ["one", "two", "three"]
    assert quire("redrive dead -n 1") == "1 messages put back\n"
    assert quire("browse w") == "one\n"
    assert quire("redrive dead --to t") == "2 messages put back\n"
    assert quire("browse t").split() == ["two", "three"]
    assert quire("redrive dead", ExitStatus.NOTHING) == "0 messages put back\n"


def test_sizes_have_units(quire: Terminal) -> None:
    """Where a queue is made and where it is altered, for all that is bytes."""
    quire("create-queue q --kind topic --capacity 1M keep_bytes=64K max_message_bytes=2k")
    quire("alter-queue q capacity=2G grow_to=1T max_stream_bytes=1G text=64K")
    queue = next(q for q in json.loads(quire("queues --json")) if q["name"] == "q")
    names = ("capacity_bytes", "keep_bytes", "max_message_bytes", "grow_to", "max_stream_bytes")
    assert [queue[name] for name in names] == [2 << 30, 64 << 10, 2 << 10, 1 << 40, 1 << 30]
    assert queue["text"] == "64K"


def test_a_state_of_nothing_is_json(quire: Terminal) -> None:
    """An empty state is JSON, as all lists are."""
    assert json.loads(quire("state --json")) == []
    assert json.loads(quire("state nothing --json")) == []


# Hints


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("put none x", "create it with quire create-queue {} none"),
        ("get t/none", "make it with quire subscribe {} t none"),
        ("put closed x", "quire alter-queue {} closed puts=true lets them go on"),
    ],
)
def test_a_hint_is_a_command(quire: Terminal, line: str, hint: str) -> None:
    """Of the store that the error is of; it can be typed as it stands."""
    quire("create-queue closed --kind work puts=false")
    quire(line, status=1)
    assert hint.format(quire.path) in quire.errors
    words = re.search(r"quire ([a-z-]+) \S+ (.*?)(?: lets.*)?$", quire.errors.strip())
    assert words
    quire(f"{words[1]} {words[2]}" + (" --kind work" if words[1] == "create-queue" else ""))
    quire(line, status=ExitStatus.NOTHING if line.startswith("get") else ExitStatus.DONE)


def test_calls_become_commands() -> None:
    """Positional arguments, options and properties; what no command does stays."""
    for text, shown in (
        ("x: create_queue('a', kind='work')", "x: quire create-queue 'a b' a --kind work"),
        ("store.admin.purge('t', 'a') helps", "quire purge 'a b' t a helps"),
        (
            "alter_queue('q', text='a b', puts=True)",
            "quire alter-queue 'a b' q 'text=a b' puts=true",
        ),
        ("see store.prepared.list()", "see quire recover 'a b'"),
        ("alter it (store.cron.alter)", "alter it (quire alter-schedule)"),
        ("not one of store.states.drop", "not one of store.states.drop"),
        ("or drop_queue it", "or quire drop-queue it"),
        ("raise it with alter_queue.", "raise it with quire alter-queue."),
        ("call frobnicate('x')", "call frobnicate('x')"),
        ("use commit() or a_word", "use commit() or a_word"),
        ("subscribe(a b)", "subscribe(a b)"),
    ):
        assert in_commands(text, "a b") == shown


# Calls that errors name and no command does: they are for programs only.
PROGRAMS_ONLY = {
    "commit", "rollback", "transaction", "unget", "get_arrow", "put_block", "states.drop",
    "queue", "read_to", "when_ready", "listeners.remove", "session", "remove",
}  # fmt: skip
NAMED = re.compile(r"\bstore\.([a-z]+\.[a-z_]+)|\b(?:store\.)?([a-z]+_[a-z_]+|[a-z]+(?=\())")


def error_texts() -> Iterator[str]:
    """The words of all errors that are raised in the source, but for Spark's."""
    for path in all_sources():
        if "spark" in str(path) or "cli" in path.parts or "testing" in path.parts:
            continue
        for node in nodes(parsed((ROOT / path).read_text()), ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


@pytest.mark.cases(6)
def test_each_call_that_an_error_names_has_a_command() -> None:
    """So the command line never tells its users to call something."""
    calls = {
        f"{path}{name}"
        for kind in (Store, Transaction)
        for path, member in (("", kind), *subjects(kind))
        for name in vars(member)
        if not name.startswith("_") and callable(getattr(member, name))
    }
    named = {one or other for text in error_texts() for one, other in NAMED.findall(text)} & calls
    assert len(named) > 10
    done = {call for command in commands().values() for call in command.calls}
    assert named - done - PROGRAMS_ONLY == set()


# How it ends


def start(*words: str) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "quire", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def test_ctrl_c_ends_quietly(quire: Terminal) -> None:
    """130, as a shell says of one that the signal ended; what was waited for stays."""
    with open_store(quire.path) as store, start("get", quire.path, "w", "--wait", "forever") as get:
        while not store.admin.transactions():
            assert get.poll() is None
        get.send_signal(signal.SIGINT)
        output, errors = get.communicate(timeout=300)
        assert (get.returncode, output, errors) == (ExitStatus.INTERRUPTED, "", "")


def test_a_reader_that_goes_ends_quietly(quire: Terminal) -> None:
    """141, as a shell says of SIGPIPE."""
    with open_store(quire.path) as store:
        store.put_many("w", [b"x" * 1000] * 1000)
    with start("browse", quire.path, "w") as browse:
        assert browse.stdout
        assert browse.stderr
        browse.stdout.read(10)
        browse.stdout.close()
        assert browse.wait(300) == ExitStatus.NOT_READ
        assert browse.stderr.read() == ""


def test_what_the_terminal_cannot_say_is_escaped(quire: Terminal) -> None:
    """An error of coding would hide what there is."""
    with open_store(quire.path) as store, store.transaction() as txn:
        txn.set_value("s", "Größe", b"1")
    run = subprocess.run(
        [sys.executable, "-m", "quire", "state", quire.path, "s"],
        cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert run.stdout.splitlines()[1].split() == [r"Gr\xf6\xdfe", "1", "'1'"]


def test_paths_that_hold_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command that needs one says so in one line, and makes nothing."""
    for command in commands().values():
        if command.name in ("create-queue", "serve", "graph run") or command.place == USERS:
            continue
        values = {"cron": "@daily", "id": "1", "changes": "paused=true", "properties": "puts=true"}
        arguments = CommandParser(command)._get_positional_actions()[1:]
        given = [values.get(action.dest, "x") for action in arguments]
        options = ["--yes"] if command.name == "graph reset" else []
        line = [*command.name.split(), str(tmp_path / "none"), *given, *options]
        assert main(line) == ExitStatus.ERROR, line
        errors = capsys.readouterr().err
        missing = "BackupNotFound" if command.place == ARCHIVE else "StoreNotFound"
        assert errors.startswith(f"quire: {missing}: "), line
        assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

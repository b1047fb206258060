"""The command line: `quire serve`, `status`, `queues`, `put`, `get` and so on.

A command that changes something opens the store as any program does: it joins the owner, or owns
the store while it runs. One that only looks never owns it: it asks the owner, or looks at the
files. `dump` reads the files, and ends with 1 where it found damage. An
error is one line on standard error and exit status 1; `serve` ends with 75 where another process
owns the store.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final, TypeVar

from quire.errors import InvalidArgument, QuireError, StoreLocked
from quire.limits import COMMAND_BATCH_MESSAGES
from quire.loggers import show_warnings

T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    show_warnings("quire")
    options = _parser().parse_args(arguments)
    if sys.stdout is None:  # what cannot be shown is not done
        print("quire: standard output is closed", file=sys.stderr)
        return 1
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status: int | None = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has seen enough
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.close()
        return 1
    except KeyboardInterrupt:
        return 130
    except (QuireError, OSError) as error:
        message = " ".join(str(error).split())
        print(f"quire: {type(error).__name__}: {message}", file=sys.stderr)
        if options.run is _serve and isinstance(error, StoreLocked):
            from quire.remote import LOCKED_EXIT_STATUS

            return LOCKED_EXIT_STATUS
        return 1
    return status or 0


def _show_warning(
    message: Warning | str, category: type[Warning], *_: object, **__: object
) -> None:
    """As errors are shown: no line of Quire is what it is about."""
    print(f"quire: {category.__name__}: {message}", file=sys.stderr)


def _open(options: argparse.Namespace) -> Any:
    from quire.opening import open as open_store

    return open_store(options.path, create=False)


def _look(options: argparse.Namespace, action: Callable[[Any], T]) -> T:
    """What the action gives of the store, which is not owned for it."""
    from quire.looking import look

    return look(options.path, action)


def _creation(options: argparse.Namespace) -> dict[str, Any]:
    """What is fixed when a store is made, as far as it was given."""
    return {} if options.data_files is None else {"data_files": options.data_files}


def _serve(options: argparse.Namespace) -> None:
    from quire.opening import serve

    print(f"process {os.getpid()} opens {options.path}", flush=True)
    serve(
        options.path,
        options.linger,
        create=options.create,
        say=lambda line: print(line, flush=True),
        **_creation(options),
    )
    print(f"process {os.getpid()} closed {options.path}", flush=True)


def _status(options: argparse.Namespace) -> None:
    status = _look(options, lambda store: store.status())
    if options.json:
        print(json.dumps(status, indent=2, sort_keys=True))
    else:
        _print_tree(status)


def _queues(options: argparse.Namespace) -> None:
    queues, subscriptions = _look(options, _queues_of)
    if options.json:
        print(json.dumps([_queue_json(queue, subscriptions[queue.name]) for queue in queues]))
        return
    rows = [("QUEUE", "KIND", "MESSAGES", "USED", "CAPACITY", "SUBSCRIPTIONS (PENDING)")]
    for queue in queues:
        readers = [f"{s.name or '-'} ({s.pending})" for s in subscriptions[queue.name]]
        rows.append(
            (
                queue.name,
                queue.kind,
                str(queue.messages),
                str(queue.used_bytes),
                str(queue.capacity_bytes),
                ", ".join(readers),
            )
        )
    _print_table(rows)


def _queues_of(store: Any) -> tuple[list[Any], dict[str, list[Any]]]:
    """All, with their subscriptions by name."""
    queues = store.queues()
    return queues, {queue.name: store.subscriptions(queue.name) for queue in queues}


def _catalog(options: argparse.Namespace) -> None:
    items = _look(options, lambda store: store.admin.catalog())
    if options.json:
        from dataclasses import asdict

        print(json.dumps([asdict(item) for item in items]))
        return
    rows = [("TYPE", "NUMBER", "VERSION", "ENTRY")]
    for item in items:
        entry = ", ".join(f"{name} {value!r}" for name, value in item.body.items())
        rows.append((item.type, str(item.key), str(item.version), entry))
    _print_table(rows)


def _state(options: argparse.Namespace) -> None:
    """The names of the state with how much they hold, or the values of one name."""
    from quire.limits import PAYLOAD_START_BYTES

    def look(store: Any) -> dict[str, dict[str, bytes]]:
        names = store.states.names() if options.name is None else [options.name]
        return {name: store.states.items(name) for name in names}

    found = _look(options, look)
    if options.json:
        for name, items in found.items():
            for key, value in items.items():
                print(json.dumps({"name": name, "key": key, **_bytes_json("value", value)}))
        return
    if options.name is None:
        rows = [("NAME", "KEYS", "BYTES")]
        for name, items in found.items():
            size = sum(len(key.encode()) + len(value) for key, value in items.items())
            rows.append((name, str(len(items)), str(size)))
    else:
        rows = [("KEY", "BYTES", "VALUE")]
        for key, value in found[options.name].items():
            rows.append((key, str(len(value)), repr(value[:PAYLOAD_START_BYTES])[1:]))
    _print_table(rows)


def _create_queue(options: argparse.Namespace) -> None:
    from quire.arguments import check_queue
    from quire.opening import open as open_store

    given = {
        "capacity": options.capacity,
        "max_messages": options.max_messages,
        "data_file": options.data_file,
    }
    check_queue(
        options.name,
        **{name: given[name] for name in ("capacity", "max_messages") if given[name] is not None},
    )  # first, or a store would be made for nothing
    properties = _properties(options.properties)
    if options.type is not None:
        properties["type"] = options.type
    with open_store(options.path, **_creation(options)) as store:
        store.create_queue(
            options.name,
            kind=options.kind,
            **{name: value for name, value in given.items() if value is not None} | properties,
        )


def _properties(given: Iterable[str]) -> dict[str, Any]:
    """From NAME=VALUE: a value is JSON, or else a text. Raises InvalidArgument."""
    from quire.arguments import check_changes

    return check_changes({name: _value(text) for name, text in _pairs(given)})


def _pairs(given: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidArgument(f"{text!r:.100}: give NAME=VALUE, as in priority=true")
        yield name, value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _alter_queue(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.alter_queue(options.name, **_properties(options.properties))


def _drop_queue(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.drop_queue(options.name)


def _rename_queue(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.admin.rename_queue(options.name, options.new_name)


def _purge(options: argparse.Namespace) -> None:
    with _open(options) as store:
        queue, _, subscription = options.source.partition("/")
        print(f"{store.admin.purge(queue, subscription or None)} messages removed")


def _create_alias(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.admin.create_alias(options.name, options.queue, options.replace)


def _drop_alias(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.admin.drop_alias(options.name)


def _aliases(options: argparse.Namespace) -> None:
    aliases = _look(options, lambda store: store.admin.aliases())
    if options.json:
        print(json.dumps(aliases))
    else:
        _print_table([("ALIAS", "QUEUE"), *aliases.items()])


def _schedules(options: argparse.Namespace) -> None:
    schedules = _look(options, lambda store: store.cron.list())
    if options.json:
        from dataclasses import asdict

        print(json.dumps([asdict(info) for info in schedules]))
        return
    rows = [("SCHEDULE", "QUEUE", "CRON", "TIME ZONE", "LAST", "NEXT", "WAITS FOR")]
    for info in schedules:
        following = "paused" if info.paused else _moment(info.next_us)
        last, waiting = _moment(info.last_us), info.waiting or "-"
        row = info.name, info.queue, info.cron, info.timezone, last, following, waiting
        rows.append(row)
    _print_table(rows)


def _moment(time_us: int | None) -> str:
    """In UTC."""
    from datetime import UTC, datetime

    if time_us is None:
        return "-"
    return f"{datetime.fromtimestamp(time_us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _create_schedule(options: argparse.Namespace) -> None:
    given = {"queue": options.queue, "cron": options.cron} | _changes_of_schedule(options.changes)
    with _open(options) as store:
        store.cron.create(options.name, **given)


def _alter_schedule(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.cron.alter(options.name, **_changes_of_schedule(options.changes))


def _changes_of_schedule(given: Iterable[str]) -> dict[str, Any]:
    """From NAME=VALUE; the payload is a text. Raises InvalidArgument."""
    from quire.schedules import check_schedule

    changes = {name: _value(text) for name, text in _pairs(given)}
    changes |= {name: os.fsencode(text) for name, text in _pairs(given) if name == "payload"}
    check_schedule(changes)
    return changes


def _drop_schedule(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.cron.drop(options.name)


def _switch(options: argparse.Namespace) -> None:
    both = not (options.puts or options.gets)
    change = {n: options.to for n in ("puts", "gets") if both or getattr(options, n)}
    with _open(options) as store:
        for name, is_on in store.admin.switch(**change).items():
            print(f"{name}: {'on' if is_on else 'off'}")


def _subscribe(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.subscribe(
            options.queue, options.subscription, _start(options.start), options.exclusive or None
        )


def _seek(options: argparse.Namespace) -> None:
    with _open(options) as store, store.transaction() as txn:
        txn.seek(options.source, _start(options.to), timeout=options.wait)


def _start(text: str) -> Any:
    """Where in a queue: a position, seconds since the epoch, a date and time, or as it is."""
    from datetime import datetime

    for read in (int, float, lambda text: datetime.fromisoformat(text).astimezone()):
        with contextlib.suppress(ValueError):
            return read(text)
    return text


def _unsubscribe(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.unsubscribe(options.queue, options.subscription)


def _put(options: argparse.Namespace) -> None:
    if options.stream:
        with _open(options) as store:
            for name in options.payloads:
                with _readable(name) as file:
                    store.put_stream(options.queue, file, size=os.fstat(file.fileno()).st_size)
            if not options.payloads:
                store.put_stream(options.queue, sys.stdin.buffer)
        return
    payloads: Iterable[bytes] = map(os.fsencode, options.payloads)
    if not options.payloads:
        payloads = (line.removesuffix(b"\n") for line in sys.stdin.buffer)
    with _open(options) as store, store.transaction() as txn:
        is_typed = store.queue(options.queue).schema is not None
        for batch in _batches(payloads):
            txn.put_many(options.queue, [_row(line) for line in batch] if is_typed else batch)


def _readable(name: str) -> BinaryIO:
    try:
        return open(name, "rb")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArgument(
            f"file {name!r:.300} cannot be read ({reason}): give one that is there and that you "
            "may read"
        ) from error


def _row(line: bytes) -> Any:
    """Of a typed queue: a JSON object of its columns."""
    try:
        return json.loads(line)
    except ValueError as error:
        raise InvalidArgument(
            f"the queue is typed: give a JSON object of its columns, not {line!r:.100} ({error})"
        ) from None


def _get(options: argparse.Namespace) -> int:
    with _open(options) as store, store.transaction() as txn:
        messages = txn.get_many(options.source, options.count, timeout=options.wait)
        for message in messages:
            _print_content(message)
        sys.stdout.flush()  # what cannot be written is not taken
    return 0 if messages else 3


def _move(options: argparse.Namespace) -> int:
    moved, left = 0, options.count
    with _open(options) as store:
        while left is None or left > 0:
            most = min(left or COMMAND_BATCH_MESSAGES, COMMAND_BATCH_MESSAGES)
            with store.transaction() as txn:
                count = txn.move(options.source, options.queue, most)
            moved += count
            left = None if left is None else left - count
            if count < most:
                break
    print(f"{moved} messages moved")
    return 0 if moved else 3


def _browse(options: argparse.Namespace) -> None:
    def seen(store: Any) -> tuple[list[Any], int]:
        messages = list(store.browse(options.source, max_messages=options.count))
        return messages, _there(store, options.source) - len(messages)

    messages, more = _look(options, seen)
    for message in messages:
        if options.json:
            print(json.dumps(_message_json(message)))
        else:
            _print_content(message)
    if len(messages) == options.count and more > 0:
        sys.stdout.flush()
        print(f"quire: {more} more are there: give -n {options.count + more}", file=sys.stderr)


def _there(store: Any, source: str) -> int:
    """How many messages a queue holds, or how many a subscription has not read."""
    queue, _, subscription = source.partition("/")
    if not subscription:
        return int(store.queue(queue).messages)
    return sum(info.pending for info in store.subscriptions(queue) if info.name == subscription)


def _transactions(options: argparse.Namespace) -> None:
    if options.id is not None:
        _one_transaction(options)
        return
    transactions = _look(options, lambda store: store.admin.transactions())
    if options.json:
        from dataclasses import asdict

        print(json.dumps([asdict(info) for info in transactions]))
        return
    rows = [("ID", "AGE", "LEFT", "OWNER", "QUEUES", "MESSAGES", "BYTES", "SPILLED", "IN FLIGHT")]
    rows += [
        (
            str(info.id),
            f"{info.age_seconds:.0f}s",
            _left(info),
            info.owner,
            ", ".join(info.queues) or "-",
            str(info.messages),
            str(info.bytes),
            str(info.spilled_bytes + info.file_bytes),
            str(info.in_flight),
        )
        for info in transactions
    ]
    _print_table(rows)


def _one_transaction(options: argparse.Namespace) -> None:
    info = _look(options, lambda store: store.admin.transaction(options.id))
    if options.json:
        from dataclasses import asdict

        print(json.dumps(asdict(info)))
        return
    places = (
        (info.buffered_bytes, "in memory"),
        (info.spilled_bytes, "in pages of the data files"),
        (info.file_bytes, "in files"),
    )
    held = ", ".join(f"{count} {where}" for count, where in places if count)
    rows = (
        ("ID", str(info.id)),
        ("OWNER", info.owner),
        ("AGE", f"{info.age_seconds:.0f}s"),
        ("LEFT", _left(info)),
        ("LARGE", "yes" if info.large else "no"),
        ("QUEUES", ", ".join(info.queues) or "-"),
        ("MESSAGES", str(info.messages)),
        ("BYTES", f"{info.bytes}: {held}" if held else str(info.bytes)),
        ("IN FLIGHT", str(info.in_flight)),
        ("SOURCES", ", ".join(info.sources) or "-"),
    )
    _print_table(rows)


def _left(info: Any) -> str:
    """Until it is rolled back."""
    return "-" if info.seconds_left is None else f"{info.seconds_left:.0f}s"


def _abort(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.admin.abort(options.id)


def _recover(options: argparse.Namespace) -> None:
    prepared = _look(options, lambda store: store.prepared.list())
    if options.json:
        from dataclasses import asdict

        print(json.dumps([asdict(info) for info in prepared]))
        return
    rows = [("XID", "AGE", "MESSAGES", "BYTES", "QUEUES")]
    for info in prepared:
        age, queues = f"{info.age_seconds:.0f}s", ", ".join(info.queues)
        rows.append((info.xid, age, str(info.messages), str(info.bytes), queues))
    _print_table(rows)


def _commit_prepared(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.prepared.commit(options.xid)


def _rollback_prepared(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.prepared.rollback(options.xid)


def _verify(options: argparse.Namespace) -> int:
    report = _look(options, lambda store: store.admin.verify(contents=options.contents))
    for finding in report.findings:
        print(finding)
    if cut := report.checked.get("journal_cut"):
        print(f"note: {cut}")
    if report.ok and "state_hash" in report.checked:
        contents = f", contents {report.checked['contents']}" if options.contents else ""
        state = report.checked["state_hash"]
        print(f"record {report.checked['number']}, state {state}{contents}")
    print("ok" if report.ok else f"{len(report.findings)} findings")
    return int(not report.ok)


def _checkpoint(options: argparse.Namespace) -> None:
    with _open(options) as store:
        store.admin.checkpoint()


def _dump(options: argparse.Namespace) -> int:
    from quire.dump_items import Finding, as_json
    from quire.dump_words import in_words
    from quire.dumping import dump

    damaged = False
    for item in dump(
        options.path,
        journal=options.journal,
        queue=options.queue,
        messages=options.messages,
        pages=options.pages,
        checkpoint=options.checkpoint,
        limit=options.limit,
        start=options.start,
        offline=options.offline,
    ):
        damaged = damaged or (isinstance(item, Finding) and item.damage)
        lines = [json.dumps(as_json(item))] if options.json else in_words(item)
        for line in lines:
            print(line.encode(sys.stdout.encoding, "backslashreplace").decode(sys.stdout.encoding))
    return int(damaged)


def _batches(payloads: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for payload in payloads:
        batch.append(payload)
        if len(batch) == COMMAND_BATCH_MESSAGES:
            yield batch
            batch = []
    if batch:
        yield batch


def _print_content(message: Any) -> None:
    """The payload, or the columns of a row as JSON."""
    from quire.typed_message import value_json

    value = value_json(message)
    if value is not None:
        sys.stdout.buffer.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
        return
    with message.open() as payload:  # it may be larger than memory
        while piece := payload.read(1 << 20):
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.write(b"\n")


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def _print_tree(value: Any, indent: str = "") -> None:
    items = value.items() if isinstance(value, dict) else ((str(i), v) for i, v in enumerate(value))
    for name, inner in items:
        if isinstance(inner, dict | list) and inner:
            print(f"{indent}{name}:")
            _print_tree(inner, indent + "  ")
        else:
            print(f"{indent}{name}: {'none' if inner in ([], {}, None) else inner}")


def _queue_json(queue: Any, subscriptions: Iterable[Any]) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(queue), "subscriptions": [asdict(value) for value in subscriptions]}


def _message_json(message: Any) -> dict[str, Any]:
    from quire.message import MESSAGE_SCHEMA
    from quire.typed_message import value_json

    shown = {
        "queue": message.queue,
        **{name: getattr(message, name) for name in MESSAGE_SCHEMA.names},
        "attributes": dict(message.attributes),
    }
    payload, value = shown.pop("payload"), value_json(message)
    return shown | (_bytes_json("payload", payload) if value is None else {"value": value})


def _bytes_json(name: str, value: bytes) -> dict[str, str]:
    """As text, where it is UTF-8; else in base64, under a name that says so."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _size(text: str) -> int:
    """Bytes, with K, M, G or T for powers of 1024."""
    unit = "KMGT".find(text[-1:].upper()) + 1 if text else 0
    number = text[:-1] if unit else text
    if not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no size: give bytes, or 64K, 512M, 2G")
    return int(number) << 10 * unit


def _place(text: str) -> int:
    """An LSN or a position: decimal, or hexadecimal with 0x."""
    try:
        place = int(text, 16 if text[:2].lower() == "0x" else 10)
    except ValueError:
        place = -1
    if place < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no LSN or position: give 4096 or 0x1000")
    return place


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: give seconds, 0 or more")
    return seconds


class _Commands:
    """The commands, each with what runs it and its arguments."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def group(self, name: str, *, help: str) -> argparse.ArgumentParser:
        """A command with commands of its own."""
        return self._parsers.add_parser(name, help=help, description=help)

    def add(
        self,
        name: str,
        run: Callable[[argparse.Namespace], int | None],
        *positional: str,
        help: str,
    ) -> argparse.ArgumentParser:
        """A command with the path of a store, and these arguments after it."""
        sub = self._parsers.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run)
        sub.add_argument("path", metavar="PATH", help="the store's directory")
        for argument in positional:
            sub.add_argument(argument, metavar=argument.upper())
        return sub


def _parser() -> argparse.ArgumentParser:
    from quire import __version__
    from quire.graphs import add_commands

    parser = argparse.ArgumentParser(
        prog="quire", description="A transactional multi-queue engine: one store is one directory."
    )
    parser.add_argument("--version", action="version", version=f"quire {__version__}")
    commands = _Commands(parser)
    _add_store_commands(commands)
    _add_queue_commands(commands)
    _add_message_commands(commands)
    _add_dump(commands)
    _add_transaction_commands(commands)
    add_commands(
        commands.group("graph", help="graphs of steps: list, show, run, pause, ..."), _start
    )
    _add_verify(commands)
    commands.add("checkpoint", _checkpoint, help="write a checkpoint")
    return parser


_FILES_HELP: Final = "how many data files a new store has"


def _add_store_commands(commands: _Commands) -> None:
    sub = commands.add("serve", _serve, help="own a store and serve it to other processes")
    sub.add_argument(
        "--linger", type=_seconds, metavar="S", help="end after S seconds without a client"
    )
    sub.add_argument("--no-create", dest="create", action="store_false", help="never make a store")
    sub.add_argument("--data-files", type=int, metavar="N", help=_FILES_HELP)

    for name, run, text in (
        ("status", _status, "show the state of a store"),
        ("queues", _queues, "list the queues with their subscriptions"),
        ("catalog", _catalog, "list what is defined: queues, subscriptions, aliases, schedules"),
        ("aliases", _aliases, "list the aliases of queues"),
        ("state", _state, "list the values that transactions have set, by name and key"),
        (
            "schedules",
            _schedules,
            "list the schedules: when they were and are due",
        ),
        (
            "transactions",
            _transactions,
            "list the open transactions: whose, how old, what they hold",
        ),
        ("recover", _recover, "list the prepared transactions that wait for a decision"),
    ):
        sub = commands.add(name, run, help=text)
        sub.add_argument("--json", action="store_true", help="as JSON")
        if run is _state:
            sub.add_argument("name", nargs="?", metavar="NAME", help="the values of this one")
        if run is _transactions:
            sub.add_argument("id", nargs="?", type=int, metavar="ID", help="all of this one")


_START_HELP: Final = (
    "earliest, latest, a position, a time (2025-01-31T12:00:00, 1738324800.0) or id:NUMBER"
)


def _add_queue_commands(commands: _Commands) -> None:
    sub = commands.add(
        "create-queue", _create_queue, "name", help="make a queue, and a store for it"
    )
    sub.add_argument("--kind", choices=("topic", "work"), default="work")
    sub.add_argument("--type", help="persistent (the default), volatile, ...")
    sub.add_argument("--capacity", type=_size, metavar="BYTES", help="bytes, or 64M, 2G")
    sub.add_argument("--max-messages", type=int, metavar="N")
    sub.add_argument("--data-file", type=int, metavar="N", help="from 0; else taken by the name")
    sub.add_argument("--data-files", type=int, metavar="N", help=_FILES_HELP)
    sub.add_argument("properties", nargs="*", metavar="NAME=VALUE", help="as priority=true")
    sub = commands.add("alter-queue", _alter_queue, "name", help="change limits and properties")
    sub.add_argument("properties", nargs="+", metavar="NAME=VALUE", help="as capacity=1000000")
    commands.add("drop-queue", _drop_queue, "name", help="remove a queue and its messages")
    commands.add("rename-queue", _rename_queue, "name", "new_name", help="rename a queue")
    commands.add("purge", _purge, "source", help="remove what waits: QUEUE or QUEUE/SUBSCRIPTION")

    sub = commands.add("create-alias", _create_alias, "name", "queue", help="name a queue twice")
    sub.add_argument("--replace", action="store_true", help="take it from another queue")
    commands.add("drop-alias", _drop_alias, "name", help="remove an alias; its queue stays")
    text = "put a message whenever a cron text says"
    sub = commands.add("create-schedule", _create_schedule, "name", "queue", "cron", help=text)
    sub.add_argument(
        "changes", nargs="*", metavar="NAME=VALUE", help="as payload=TEXT timezone=UTC"
    )
    sub = commands.add("alter-schedule", _alter_schedule, "name", help="change or pause a schedule")
    sub.add_argument("changes", nargs="+", metavar="NAME=VALUE", help="as paused=true")
    commands.add("drop-schedule", _drop_schedule, "name", help="remove a schedule")
    for name, to, text in (
        ("disable", False, "stop the whole store for puts, gets or both"),
        ("enable", True, "let puts, gets or both in again"),
    ):
        sub = commands.add(name, _switch, help=text)
        sub.set_defaults(to=to)
        sub.add_argument("--puts", action="store_true", help="for puts")
        sub.add_argument("--gets", action="store_true", help="for gets")

    sub = commands.add("subscribe", _subscribe, "queue", "subscription", help="make a subscription")
    sub.add_argument("--start", default="earliest", help=f"{_START_HELP}; else earliest")
    sub.add_argument(
        "--exclusive", action="store_true", help="one transaction at a time has messages of it"
    )
    commands.add("unsubscribe", _unsubscribe, "queue", "subscription", help="remove a subscription")
    text = "move a subscription: what is kept from there on is unread, the rest is read"
    sub = commands.add("seek", _seek, "source", "to", help=text)
    sub.add_argument("--wait", type=_seconds, default=0.0, metavar="S", help="for its readers")


def _add_message_commands(commands: _Commands) -> None:
    sub = commands.add("put", _put, "queue", help="put messages in one transaction")
    sub.add_argument("payloads", nargs="*", metavar="PAYLOAD", help="else lines of standard input")
    text = "a message of each file that is named, or of all of standard input, of any size"
    sub.add_argument("--stream", action="store_true", help=text)

    sub = commands.add("get", _get, "source", help="take messages and print their payloads")
    sub.add_argument("-n", dest="count", type=int, default=1, metavar="N", help="at most N; else 1")
    sub.add_argument("--wait", type=float, default=0.0, metavar="S", help="for the first one")

    sub = commands.add("move", _move, "source", "queue", help="move messages to another queue")
    sub.add_argument("-n", dest="count", type=int, metavar="N", help="at most N; else all")

    sub = commands.add("browse", _browse, "source", help="print messages without taking them")
    sub.add_argument(
        "-n",
        dest="count",
        type=int,
        default=COMMAND_BATCH_MESSAGES,
        metavar="N",
        help=f"at most N; else {COMMAND_BATCH_MESSAGES}",
    )
    sub.add_argument(
        "--json",
        action="store_true",
        help="all fields, one message a line; payload_base64 in place of payload where it is not "
        "UTF-8",
    )


def _add_verify(commands: _Commands) -> None:
    sub = commands.add("verify", _verify, help="check every byte of a store")
    sub.add_argument("--contents", action="store_true", help="and tell a digest of all messages")


def _add_dump(commands: _Commands) -> None:
    text = "list what a store's files hold, also of a damaged store"
    sub = commands.add("dump", _dump, help=text)
    sub.add_argument("--journal", action="store_true", help="every record of the journal")
    sub.add_argument("--queue", metavar="NAME", help="the records of a queue (or #ID)")
    sub.add_argument("--messages", action="store_true", help="and the queue's messages")
    sub.add_argument("--pages", action="store_true", help="what the pages of the data files hold")
    sub.add_argument("--checkpoint", action="store_true", help="what the checkpoint holds")
    sub.add_argument("--limit", type=int, metavar="N", help="at most N of each list")
    sub.add_argument(
        "--from", dest="start", type=_place, default=0, metavar="PLACE",
        help="begin at this LSN of the journal, or position of the queue",
    )  # fmt: skip
    sub.add_argument("--offline", action="store_true", help="ask no owner for what is open")
    sub.add_argument("--json", action="store_true", help="one JSON object a line")


def _add_transaction_commands(commands: _Commands) -> None:
    sub = commands.add("abort", _abort, help="roll back an open transaction, whosever it is")
    sub.add_argument("id", type=int, metavar="ID", help="as `transactions` lists it")
    for name, run, text in (
        ("commit-prepared", _commit_prepared, "commit a prepared transaction"),
        ("rollback-prepared", _rollback_prepared, "roll back a prepared transaction"),
    ):
        commands.add(name, run, "xid", help=text)


if __name__ == "__main__":
    sys.exit(main())

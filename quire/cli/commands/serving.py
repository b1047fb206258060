"""Commands for the store as a whole: serving it, stopping and starting it, how it is."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from quire.cli import status_table
from quire.cli.command import Command, ExitStatus, argument
from quire.cli.opened_store import creation, opened, seen
from quire.cli.printing import (
    counted,
    fields_of,
    print_json,
    print_table,
    print_tree,
    size_words,
)
from quire.cli.typed_values import limits, seconds, size
from quire.errors import InvalidArgument
from quire.json_log import JsonLines, log_as_json
from quire.libraries.late_imports import importing
from quire.opening import serve

from .queues import DATA_FILES
from .status_check import CHECKS, check_status

if TYPE_CHECKING:
    from quire.tls import Tls


def _serve(options: argparse.Namespace) -> None:
    shown = log_as_json() if options.log_format == "json" else None
    try:
        _serve_and_say(options, _as_json if shown is not None else _as_text)
    finally:
        if shown is not None:
            logging.getLogger("quire").removeHandler(shown)


def _as_text(line: str) -> None:
    print(line, flush=True)


def _as_json(line: str) -> None:
    record = logging.LogRecord("quire.opening", logging.INFO, "", 0, line, None, None)
    print(JsonLines().format(record), flush=True)


def _serve_and_say(options: argparse.Namespace, say: Callable[[str], None]) -> None:
    say(f"process {os.getpid()} opens {options.path}")
    serve(
        options.path,
        options.linger,
        create=options.create,
        wait=options.wait,
        listen=options.listen or (),
        tls=_tls_of(options),
        insecure=options.insecure,
        users=options.users,
        audit=options.audit,
        grace=options.grace,
        heartbeat=options.heartbeat,
        limits=_limits_of(options),
        metrics=options.metrics,
        metrics_tls=_metrics_tls_of(options),
        say=say,
        **creation(options),
    )
    say(f"process {os.getpid()} closed {options.path}")


def _limits_of(options: argparse.Namespace) -> dict[str, float | None]:
    """The limits of all clients together. Raises InvalidArgument."""
    values, defaults = limits(options.limit or ())
    if defaults:
        raise InvalidArgument(f"--limit {defaults[0]}=default: leave it out")
    return values


def _metrics_tls_of(options: argparse.Namespace) -> Tls | None:
    """The server's certificates, where metrics are served over TLS, too. Raises InvalidArgument."""
    tls = _tls_of(options) if options.metrics_tls else None
    if options.metrics_tls and tls is None:
        raise InvalidArgument("--metrics-tls: give --tls-cert and --tls-key, too")
    return tls


def _tls_of(options: argparse.Namespace) -> Tls | None:
    """The server's certificates, if there are any."""
    with importing():  # msgspec, of which the command line needs nothing
        from quire.tls import Tls

    files = {"cert": options.tls_cert, "key": options.tls_key, "ca": options.client_ca}
    return Tls(**files) if any(files.values()) else None


def _status(options: argparse.Namespace) -> int:
    if options.check:
        return check_status(options)
    _show_status(options)
    return ExitStatus.DONE


def _show_status(options: argparse.Namespace) -> None:
    if options.queue is not None:
        report: Any = fields_of(seen(options, lambda store: store.queue(options.queue)))
    elif options.json or options.all:
        report = seen(options, lambda store: store.status())
    else:
        _print_short(options.path, *seen(options, _short_status_of))
        return
    if options.json:
        print_json(report)
    else:
        print_tree(report)


def _short_status_of(store: Any) -> tuple[dict[str, Any], dict[str, bool]]:
    return status_table.read_status(store), store.admin.switch()


def _print_limits(limits: dict[str, Any]) -> None:
    """Print what users have in use; of all clients, what was refused."""
    rows = [("WHO", "LIMIT", "IN USE", "OF", "REFUSED")]
    for who, report in [*limits["users"].items(), ("all clients", limits.get("in_all", {}))]:
        for name, use in report.items():
            if use["refused"] or (use["used"] and who in limits["users"]):
                of = "-" if use["limit"] is None else f"{use['limit']:,.12g}"
                rows.append((who, name, f"{use['used']:,}", of, str(use["refused"])))
    if len(rows) > 1:
        print()
        print_table(rows)


def _print_short(path: str, status: dict[str, Any], switches: dict[str, bool]) -> None:
    owner = status["sharing"]["process_id"] if "sharing" in status else None
    print(f"{path}: " + ("no process has it open" if owner is None else f"process {owner} owns it"))
    waiting = sum(queue["messages"] for queue in status["queues"])
    on_disk = status["journal"]["bytes"] + status["data"]["bytes"]
    print(
        f"{counted(waiting, 'message')} in {counted(len(status['queues']), 'queue')}; "
        f"{counted(len(status['transactions']), 'open transaction')}, "
        f"{len(status['prepared'])} prepared; {size_words(on_disk)} in journal and data files"
    )
    for name in (name for name, is_on in switches.items() if not is_on):
        print(f"{name} are stopped in all queues: quire enable lets them in again")
    if "archive" in status:
        _print_archive(status["archive"])
    if status["maintenance_error"] is not None:
        print(f"the maintenance fails: {status['maintenance_error']}")
    if status["queues"]:
        print()
        status_table.print_queues_in_short(status)
    if "sharing" in status:
        _print_limits(status["sharing"]["limits"])


def _print_archive(archive: dict[str, Any]) -> None:
    print(
        f"archive {archive['url']}: {counted(archive['lag_records'], 'record')} not shipped, "
        f"{size_words(archive['lag_bytes'] + archive['held_bytes'])} wait for it"
    )
    if archive["error"]:
        print(f"nothing can be shipped now: {archive['error']}")
    if archive["gap_since"]:
        print(f"records were let go of unshipped since {archive['gap_since']}")
    if archive["puts_wait"]:
        print("puts wait for that")


def _disable(options: argparse.Namespace) -> None:
    _switch(options, to=False)


def _enable(options: argparse.Namespace) -> None:
    _switch(options, to=True)


def _switch(options: argparse.Namespace, *, to: bool) -> None:
    both = not (options.puts or options.gets)
    change = {n: to for n in ("puts", "gets") if both or getattr(options, n)}
    with opened(options) as store:
        for name, is_on in store.admin.switch(**change).items():
            print(f"{name}: {'on' if is_on else 'off'}")


_SWITCHES: Final = (
    argument("--puts", action="store_true", help="for puts only"),
    argument("--gets", action="store_true", help="for gets only"),
)

COMMANDS: Final = (
    Command(
        "serve",
        "own a store and serve it to other processes, until a signal comes",
        _serve,
        (
            argument(
                "--linger",
                type=seconds,
                metavar="S",
                help="end after so many seconds without a client",
            ),
            argument("--no-create", dest="create", action="store_false", help="never make a store"),
            argument(
                "--no-wait",
                dest="wait",
                action="store_false",
                help="end at once, with status 75, where another process owns the store",
            ),
            argument(
                "--listen",
                action="append",
                metavar="HOST:PORT",
                help="serve other machines at this port, too; may be repeated",
            ),
            argument("--tls-cert", metavar="FILE", help="the server's certificate, in PEM"),
            argument("--tls-key", metavar="FILE", help="the private key of that"),
            argument(
                "--client-ca",
                metavar="FILE",
                help="the authority that has signed the certificates of clients",
            ),
            argument(
                "--users",
                metavar="FILE",
                help="let in its users alone, each with his rights (quire user makes it)",
            ),
            argument(
                "--audit",
                metavar="FILE",
                help="write down what these users change, and what they are refused",
            ),
            argument("--insecure", action="store_true", help="listen on loopback without TLS"),
            argument(
                "--grace",
                type=seconds,
                default=0.0,
                metavar="S",
                help="at a signal let open transactions of clients end, for so many seconds",
            ),
            argument(
                "--log-format",
                choices=("text", "json"),
                default="text",
                help="of its lines, and of warnings: json has one object a line",
            ),
            argument(
                "--heartbeat",
                type=seconds,
                metavar="S",
                help="as the owner, end connections at ports after so long without a sign (30)",
            ),
            argument(
                "--limit",
                action="append",
                metavar="LIMIT=VALUE",
                help="what all clients together may have in use; may be repeated",
            ),
            argument(
                "--metrics",
                metavar="HOST:PORT",
                help="answer /metrics, /healthz and /readyz there, by HTTP",
            ),
            argument(
                "--metrics-tls", action="store_true", help="by HTTPS, with the same certificates"
            ),
            argument(
                "--timings",
                action="store_true",
                default=None,
                help="count how long commits and syncs take, for the metrics",
            ),
            argument(
                "--warn-below",
                dest="warn_below_bytes",
                type=size,
                metavar="BYTES",
                help="warn when the disk has less free: 2G",
            ),
            argument(
                "--refuse-below",
                dest="refuse_below_bytes",
                type=size,
                metavar="BYTES",
                help="refuse puts then, and let all else go on: docs/operations.md",
            ),
            DATA_FILES,
        ),
        "Nobody needs it: the first process that opens a store owns it, and serves the others. It\n"
        "is for a store that shall stay open while programs come and go: docs/sharing.md. Where\n"
        "another process owns the store already, it waits, and takes over when that one ends.\n"
        "With --listen it lets in other machines, from the beginning on: docs/network.md.\n"
        "LIMIT is one of docs/security.md; `quire user limit` sets those of each user.",
    ),
    Command(
        "status",
        "show how a store is: a line for each queue, or all numbers",
        _status,
        (
            argument("queue", nargs="?", metavar="QUEUE", help="tell all of this queue"),
            argument("--all", action="store_true", help="tell all of the store"),
            argument("--json", action="store_true", help="as JSON, all of it"),
            *CHECKS,
        ),
        "With --check the exit status is 0 (OK), 1 (WARNING) or 2 (CRITICAL).\n\n"
        "  quire status shop.quire\n"
        "  quire status shop.quire orders\n"
        "  quire status shop.quire --all\n"
        "  quire status shop.quire --check --warning-used 70",
        calls=("status",),
    ),
    Command(
        "disable",
        "stop the whole store for puts, gets or both",
        _disable,
        _SWITCHES,
        "What was put and got before may be committed. It stays so until `enable`.",
    ),
    Command(
        "enable",
        "let puts, gets or both in again",
        _enable,
        _SWITCHES,
        calls=("admin.switch",),
    ),
)

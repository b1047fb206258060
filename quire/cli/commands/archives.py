"""Commands for archives: a store's own one; backups made, listed, restored."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from quire.cli.command import ARCHIVE, JSON, Command, ExitStatus, argument
from quire.cli.opened_store import opened
from quire.cli.printing import counted, exact_moment_text, print_json, print_listing
from quire.cli.typed_values import record_or_moment, seconds, size
from quire.env import OsEnv
from quire.errors import ArchiveError, ArchiveFailed, ResourceExhausted
from quire.libraries.late_imports import importing

if TYPE_CHECKING:
    from quire.archive import BackupInfo
    from quire.reports.info import ArchiveInfo, Report


def _backup(options: argparse.Namespace) -> None:
    with importing():
        from quire.archive import backup, keep
        from quire.arguments import check_seconds

    if options.keep is not None:
        check_seconds(options.keep)
    with opened(options) as store, _progress("backup") as report:
        made = backup(store, options.url, report=report)
        removed = [] if options.keep is None else keep(options.url, options.keep, store=store)
    if options.json:
        print_json(made)
        return
    info = made.backup
    print(f"backup of record {info.number}, {_size(info)}, {made.sent_bytes:,} bytes sent")
    if removed:
        print(f"{counted(len(removed), 'older backup')} removed")


def _list(options: argparse.Namespace) -> None:
    with importing():
        from quire.archive import backups
        from quire.archive.choosing import no_backup

    found = backups(options.path)
    if not found:
        raise no_backup(options.path)
    rows = (
        (
            exact_moment_text(each.time_us),
            str(each.number),
            "-" if each.damage else str(each.until_number),
            "-" if each.damage else exact_moment_text(each.until_us),
            f"{each.bytes:,}",
            each.damage or each.state_hash + (f", then {each.end}" if each.end else ""),
        )
        for each in found
    )
    columns = ("TIME", "RECORD", "UNTIL-RECORD", "UNTIL-TIME", "BYTES", "STATE")
    print_listing(options, found, columns, rows)


def _restore(options: argparse.Namespace) -> None:
    with importing():
        from quire.archive import restore

    number, time = options.at or (None, None)
    with _progress("restore") as report:
        made = restore(options.path, options.target, number=number, time=time, report=report)
    if options.json:
        print_json(made)
        return
    print(
        f"restored {options.target}: record {made.number} ({exact_moment_text(made.time_us)}), "
        "verified"
    )
    if options.at is None and made.backup.end:
        print(
            "quire: later records are in the archive, and cannot be restored: " + made.backup.end,
            file=sys.stderr,
        )


def is_archive(place: str) -> bool:
    """Return True for a URL, and for a directory that holds an archive and no store."""
    with importing():
        from quire.archive.format import STORE
        from quire.engine.layout import Layout

    env = OsEnv()
    return "://" in place or (
        env.exists(f"{place}/{STORE}") and not env.exists(Layout(place).checkpoints)
    )


def verified(place: str) -> Report:
    """Return the findings about an archive."""
    with importing():
        from quire.archive import verify

    return verify(place)


def _size(info: BackupInfo) -> str:
    return f"{info.bytes:,} bytes in {counted(info.objects, 'object')}"


@contextmanager
def _progress(doing: str) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how far the block is."""
    shown = -1

    def report(done: int, expected: int) -> None:
        nonlocal shown
        percent = 100 * done // max(expected, 1)
        if percent != shown and sys.stderr is not None and sys.stderr.isatty():
            shown = percent
            text = f"\r{doing}: {done >> 20:,} of {expected >> 20:,} MiB, {percent} %"
            print(text, end="", file=sys.stderr, flush=True)

    try:
        yield report
    finally:
        if shown >= 0:
            print(file=sys.stderr)


def _set(options: argparse.Namespace) -> None:
    url = checked_url(options.url, options.path)
    chosen = {"limit": options.limit, "full": options.full, "keep": options.keep}
    settings = {name: value for name, value in chosen.items() if value is not None}
    with importing():
        from quire.archive.shipping import shipped_end

    with opened(options) as store:
        unseen = ""
        try:
            shipped_end(store, url)  # one that is another's is refused, now that somebody sees it
        except (ArchiveFailed, ResourceExhausted) as error:  # the owner's process may reach it
            unseen = str(error)
        info = store.admin.set_archive(url, **settings)
    _print_archive(options, info)
    if unseen:
        print(
            f"quire: nobody has seen whose archive this is: {unseen}; `quire archive show` tells"
            " once the store's owner reaches it",
            file=sys.stderr,
        )


def checked_url(url: str, path: str) -> str:
    """Return the URL of an archive for the store at `path`, whatever the directory of its owner.

    Raises InvalidArgument for a place where none can be, now that somebody sees it.
    """
    with importing():
        from quire.archive.objects import check_outside, open_objects
        from quire.engine.upkeep.shipping import absolute_url

    env = OsEnv()
    with closing(open_objects(url, env)) as objects:
        check_outside(objects, env, path)
    return absolute_url(url, env)


def _show(options: argparse.Namespace) -> int | None:
    with opened(options) as store:
        info, status = store.admin.archive(), store.status().get("archive")
        unowned = ""
        if store.role == "owner" and info is not None and status is not None:
            unowned = look_at_archive(store, info, status)
    if info is None:
        if options.json:
            print_json(None)
        else:
            print("the store has no archive")
        return ExitStatus.NOTHING
    _print_archive(options, info, status)
    if unowned and not options.json:
        print(unowned)
    return None


def look_at_archive(store: Any, info: ArchiveInfo, status: dict[str, Any]) -> str:
    """Put into the status what the archive itself has, for a store that only this command owns.

    A report of what was shipped is never durable, so the store does not know. Return a sentence.
    """
    with importing():
        from quire.archive.shipping import shipped_end

    text = "no other process has the store open: `quire archive ship` ships what waits"
    try:
        shipped = shipped_end(store, info.url)
    except (ArchiveError, ResourceExhausted) as error:
        status["error"] = status["error"] or str(error)
        return f"{text}; how much waits is what the store knew at its last checkpoint"
    known = store.integration.ship(None)
    lag = max(known.end_number - max(known.number, shipped.number), 0)
    lag_us = OsEnv().now_us() - shipped.time_us if lag and shipped.time_us else 0
    status["lag_records"], status["lag_seconds"] = lag, max(lag_us, 0) / 1e6
    if not lag:
        status["lag_bytes"] = 0
    if not shipped.number:
        return f"{text}; the archive has no entry of records yet"
    return (
        f"{text}; the latest record in the archive is {shipped.number} "
        f"({exact_moment_text(shipped.time_us)})"
    )


def _print_archive(
    options: argparse.Namespace, info: ArchiveInfo, status: dict[str, Any] | None = None
) -> None:
    if options.json:
        print_json({"archive": info, "status": status})
        return
    kept = f"for {info.keep_seconds / 86400:g} days" if info.keep_seconds else "for ever"
    print(f"archive {info.url}, restore points kept {kept}")
    print(f"beyond {info.limit:,} bytes unshipped: {info.full}")
    if status is not None:
        print(
            f"not shipped: {counted(status['lag_records'], 'record')}, "
            f"{status['lag_bytes']:,} bytes, for {status['lag_seconds']:,.1f} s; "
            f"{status['held_bytes']:,} bytes released and kept for it"
        )
        if status["error"]:
            print(f"nothing can be shipped now: {status['error']}")
        if status["gap_since"]:
            print(
                f"records were let go of unshipped at {status['gap_since']}: a base is to be made"
            )


def _off(options: argparse.Namespace) -> None:
    with opened(options) as store:
        store.admin.stop_archive()


def _ship(options: argparse.Namespace) -> None:
    with importing():
        from quire.archive.shipping import ship_now

    with opened(options) as store:
        number = ship_now(store, options.timeout)
    print(f"shipped up to record {number}")


_AT: Final = argument(
    "--at",
    type=record_or_moment,
    metavar="RECORD|TIME",
    help="as of this record, or of the latest one up to this time; as of the latest, if missing",
)

COMMANDS: Final = (
    Command(
        "archive set",
        "have every record shipped to an archive from now on",
        _set,
        (
            argument("url", metavar="URL", help=ARCHIVE[1]),
            argument(
                "--keep",
                type=seconds,
                metavar="TIME",
                help="how long restore points are kept, such as 7d; else for ever",
            ),
            argument(
                "--limit",
                type=size,
                metavar="BYTES",
                help="that may wait to be shipped; else 10 GiB",
            ),
            argument(
                "--full",
                choices=("gap", "wait"),
                help="beyond the limit: let go of it (gap), or have puts wait",
            ),
            JSON,
        ),
        "Each owner of the store ships, from now on, as long as it has the store open, and makes\n"
        "a base now and then, from which a restore begins:\n"
        "  quire archive set shop.quire /backups/shop --keep 7d\n"
        "  quire restore /backups/shop shop.quire --at 2026-01-31T12:00:00",
        calls=("admin.set_archive",),
    ),
    Command(
        "archive show",
        "show a store's archive, and what is not shipped yet",
        _show,
        (JSON,),
        calls=("admin.archive",),
    ),
    Command(
        "archive off",
        "ship no more records; what is in the archive stays",
        _off,
        calls=("admin.stop_archive",),
    ),
    Command(
        "archive ship",
        "ship what there is, and return when it is in the archive",
        _ship,
        (
            argument(
                "--timeout",
                type=seconds,
                metavar="TIME",
                default=60.0,
                help="give up after so long (1m)",
            ),
        ),
        "For stores that no process has open for long: run it now and then, as by cron.",
    ),
    Command(
        "backup",
        "back a store up, while it is in use",
        _backup,
        (
            argument("url", metavar="URL", help=ARCHIVE[1]),
            argument(
                "--keep",
                type=seconds,
                metavar="TIME",
                help="then remove backups older than that, such as 7d, but for the newest",
            ),
            JSON,
        ),
        "Programs go on meanwhile. docs/archive.md says what is promised:\n"
        "  quire backup shop.quire /backups/shop --keep 7d",
    ),
    Command(
        "backups",
        "list the backups of an archive, with the record until which each can be restored",
        _list,
        (JSON,),
        place=ARCHIVE,
    ),
    Command(
        "restore",
        "make a store of an archive, as of any record that it covers",
        _restore,
        (argument("target", metavar="PATH", help="where the store is to be"), _AT, JSON),
        "There must be nothing at PATH, or an empty directory. The store is verified before it\n"
        "gets that name:\n"
        "  quire restore /backups/shop shop.quire --at 2026-01-31T12:00:00",
        place=ARCHIVE,
    ),
)

"""Commands for archives: backups made, listed, restored."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from quire.cli.command import ARCHIVE, JSON, Command, argument
from quire.cli.opened_store import opened
from quire.cli.printing import counted, moment_text, print_json, print_listing
from quire.cli.typed_values import record_or_moment, seconds
from quire.env import OsEnv
from quire.libraries.late_imports import importing

if TYPE_CHECKING:
    from quire.archive import BackupInfo
    from quire.reports.info import Report


def _backup(options: argparse.Namespace) -> None:
    with importing():
        from quire.archive import backup, keep
        from quire.arguments import check_seconds

    if options.keep is not None:
        check_seconds(options.keep)
    with opened(options) as store, _progress("backup") as report:
        made = backup(store, options.url, report=report)
    removed = [] if options.keep is None else keep(options.url, options.keep)
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
            moment_text(each.time_us),
            str(each.number),
            f"{each.bytes:,}",
            each.damage or each.state_hash,
        )
        for each in found
    )
    print_listing(options, found, ("TIME", "RECORD", "BYTES", "STATE"), rows)


def _restore(options: argparse.Namespace) -> None:
    with importing():
        from quire.archive import restore

    number, time = options.at or (None, None)
    with _progress("restore") as report:
        info = restore(options.path, options.target, number=number, time=time, report=report)
    if options.json:
        print_json(info)
        return
    print(
        f"restored {options.target}: record {info.number} ({moment_text(info.time_us)}), verified"
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


_AT: Final = argument(
    "--at",
    type=record_or_moment,
    metavar="RECORD|TIME",
    help="the newest backup that is not after this",
)

COMMANDS: Final = (
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
    Command("backups", "list the backups of an archive", _list, (JSON,), place=ARCHIVE),
    Command(
        "restore",
        "make a store of a backup",
        _restore,
        (argument("target", metavar="PATH", help="where the store is to be"), _AT, JSON),
        "There must be nothing at PATH, or an empty directory. The store is verified before it\n"
        "gets that name:\n"
        "  quire restore /backups/shop shop.quire --at 2026-01-31T12:00:00",
        place=ARCHIVE,
    ),
)

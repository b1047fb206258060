"""Commands that look at a store's files: checked, in words, brought up to date."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

from quire.cli.command import JSON, Command, ExitStatus, argument
from quire.cli.opened_store import calling, opened, seen
from quire.cli.printing import fields_of, print_json, print_listing
from quire.cli.typed_values import count, place
from quire.libraries.late_imports import importing

from . import archives

if TYPE_CHECKING:
    from quire.reports.info import Report

_KEYED: Final = "quire.keyed."  # begins the names of keyed states, whose code few stores need


def _verify(options: argparse.Namespace) -> int:
    if archives.is_archive(options.path):
        report = archives.verified(options.path)
    else:
        report = seen(options, lambda store: _verified(store, contents=options.contents))
    if options.json:
        print_json({"ok": report.ok, **fields_of(report)})
        return ExitStatus.DONE if report.ok else ExitStatus.ERROR
    for finding in report.findings:
        print(f"warning: {finding}" if finding in report.warnings else finding)
    if report.ok and "state_hash" in report.checked:
        contents = f", contents {report.checked['contents']}" if options.contents else ""
        state = report.checked["state_hash"]
        print(f"record {report.checked['number']}, state {state}{contents}")
    print(_verdict(len(report.damage), len(report.warnings)))
    return ExitStatus.DONE if report.ok else ExitStatus.ERROR


def _verified(store: Any, *, contents: bool) -> Report:
    """Check a store, and its keyed states, where there are any."""
    report: Report = store.admin.verify(contents=contents)
    if any(name.startswith(_KEYED) for name in store.states.names()):
        with importing():
            from quire.keyed import verify

        found = verify(store)
        report.findings.extend(found.findings)
        report.warnings.extend(found.warnings)
        report.checked.update(found.checked)
    return report


def _verdict(damage: int, warnings: int) -> str:
    counts = [f"{damage} findings of damage"] if damage else ["ok"]
    if warnings:
        counts.append(f"{warnings} warning" + "s" * (warnings > 1))
    return ", ".join(counts)


def _catalog(options: argparse.Namespace) -> None:
    items = seen(options, lambda store: store.admin.catalog())
    rows = (
        (
            item.type,
            str(item.key),
            str(item.version),
            ", ".join(f"{name} {value!r}" for name, value in item.body.items()),
        )
        for item in items
    )
    print_listing(options, items, ("TYPE", "NUMBER", "VERSION", "ENTRY"), rows)


def _dump(options: argparse.Namespace) -> int:
    with importing():
        from quire.file_dump.dump import dump
        from quire.file_dump.items import Finding, as_json
        from quire.file_dump.words import in_words

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
        for line in [json.dumps(as_json(item))] if options.json else in_words(item):
            print(line)
    return ExitStatus.ERROR if damaged else ExitStatus.DONE


def _salvage(options: argparse.Namespace) -> int:
    with importing():
        from quire.file_dump.items import as_json
        from quire.file_dump.words import in_words
        from quire.file_salvage.salvage import salvage
        from quire.file_salvage.words import report_lines

    report = salvage(options.path, options.target)
    findings = report.findings
    if options.json:
        print_json({**fields_of(report), "findings": [as_json(finding) for finding in findings]})
    else:
        for line in [*report_lines(report), *(line for f in findings for line in in_words(f))]:
            print(line)
    return ExitStatus.DONE if report.is_complete else ExitStatus.ERROR


def _compact(options: argparse.Namespace) -> None:
    with opened(options) as store:
        report = store.admin.compact()
    if options.json:
        print_json({**fields_of(report), "freed_bytes": report.freed_bytes})
        return
    for name, before in report.before.items():
        print(f"{name}: {before:,} bytes before, {report.after[name]:,} after")
    print(f"{report.freed_bytes:,} bytes given back")


COMMANDS: Final = (
    Command(
        "verify",
        "check every byte of a store, or of an archive",
        _verify,
        (
            argument("--contents", action="store_true", help="and tell a digest of all messages"),
            JSON,
        ),
        "Rows of keyed states are read as such, too, so a store that has some is read twice.\n"
        "PATH may be the URL, or the directory, of an archive: all backups are read back then.\n\n"
        "The exit status is 1 where damage was found. A warning leaves it 0: the journal's end\n"
        "was cut when the store was opened, as after a power failure. If there was none, the\n"
        "last commit may be lost.",
        calls=("admin.verify",),
    ),
    Command(
        "dump",
        "tell what a store's files hold, also of a damaged store",
        _dump,
        (
            argument("--journal", action="store_true", help="every record of the journal"),
            argument("--queue", metavar="NAME", help="the records of a queue (or #ID)"),
            argument("--messages", action="store_true", help="and the queue's messages"),
            argument("--pages", action="store_true", help="what the data files' pages hold"),
            argument("--checkpoint", action="store_true", help="what the checkpoint holds"),
            argument("--limit", type=count, metavar="N", help="up to N of each list"),
            argument(
                "--from", dest="start", type=place, default=0, metavar="PLACE",
                help="begin at this LSN of the journal, or position of the queue",
            ),
            argument("--offline", action="store_true", help="ask no owner for what is open"),
            argument("--json", action="store_true", help="one JSON object a line"),
        ),
        "Without options: what there is, in short. The exit status is 1 where damage was found.\n"
        "docs/dump.md explains the words.",
    ),
    Command(
        "salvage",
        "make a new store of all that is whole of a damaged one",
        _salvage,
        (argument("target", metavar="NEW", help="where the new store is to be"), JSON),
        "Nothing is changed in the damaged store, which nobody may have open. There must be\n"
        "nothing at NEW, or an empty directory. It says what is lost, by queue and position, and\n"
        "what is damaged, by file; the exit status is 1 if anything is:\n"
        "  quire salvage shop.quire shop-salvaged.quire",
        place=("DAMAGED", "the damaged store's directory"),
    ),
    Command(
        "catalog",
        "list what is defined: queues, subscriptions, aliases, schedules",
        _catalog,
        (JSON,),
        calls=("admin.catalog",),
    ),
    Command(
        "checkpoint",
        "write a checkpoint now; the store does so by itself",
        calling("admin.checkpoint"),
        calls=("admin.checkpoint",),
    ),
    Command(
        "compact",
        "give the disk back what the store keeps to go on with",
        _compact,
        (JSON,),
        "Programs go on meanwhile. It says how many bytes there were before and after, and is for\n"
        "a store that is to be small from now on: the journal takes its space again with use.",
        calls=("admin.compact",),
    ),
)  # fmt: skip

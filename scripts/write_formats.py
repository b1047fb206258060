"""docs/format.md from the docstrings of the modules that know the bytes, docs/delivery.md from the
table of what may become of a message, docs/request-outcomes.md from that of what may become of a
request; --check compares only."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "format.md"
SOURCES = [
    ("Journal", "journal/format.py"),
    ("Engine: journal records, record pages, checkpoints", "engine/records/format.py"),
    ("Data file", "engine/pages/data_file.py"),
    ("Block", "quire/block/format.py"),
    ("Large transaction's file", "ltds/format.py"),
    ("Archive", "quire/archive/format.py"),
    ("Run of a keyed state", "quire/keyed/format.py"),
]
HEAD = """# File formats

Generated from the docstrings of the modules named below by `make docs`; change it there.
A release reads the versions that its formats name and refuses others.
"""

DELIVERY = ROOT / "docs" / "delivery.md"
DELIVERY_TABLE = ROOT / "engine" / "delivery" / "delivery_table.py"
DELIVERY_HEAD = """# What may be got next

Generated from `engine/delivery/delivery_table.py` by `make docs`; change it there.

For each [subscription](glossary.md#subscription), a [position](glossary.md#position) of a queue is
in exactly one of these states. The tables below have all its ways from one state to another. A get
takes `AVAILABLE` positions; a call that names a message by its id also takes a `SCHEDULED` one. The
queue's order decides which position is next. Its [ordered group](glossary.md#ordered-group) decides
who may take it, and the queue's [pace](glossary.md#pace) when it may start. A queue without such
options has the states `AVAILABLE`, `IN_FLIGHT` and `READ` only. Random histories hold the engine to
the table after each step
(`tests/engine/test_delivery_model.py`), and to limits (`tests/engine/test_pace_model.py`).
"""


OUTCOMES = ROOT / "docs" / "request-outcomes.md"
OUTCOMES_TABLE = ROOT / "remote" / "client" / "request_outcomes.py"
OUTCOMES_HEAD = """# Request outcomes

Generated from `remote/client/request_outcomes.py` by `make docs`; change it there.

What becomes of a request that is not answered depends on what it asks for, how far it has come, and
what has happened. [Sharing a store](sharing.md#what-a-call-meets-when-the-owner-ends) says it in
short; this is the whole table, by which clients decide. Each cell is brought about with real owners
and clients (`tests/remote/test_request_outcomes.py`). Of a call that is repeated, the furthest
request counts. A process that is forked has the column `CLOSED` for what it calls in the child.
What a signal's handler raises leaves any call (`INTERRUPTED`).
"""


def text() -> str:
    """The whole document."""
    parts = [HEAD]
    for title, source in SOURCES:
        docstring = ast.get_docstring(ast.parse((ROOT / source).read_text())) or ""
        parts.append(f"## {title}\n\n`{source}`\n\n```text\n{docstring.strip()}\n```\n")
    return "\n".join(parts)


def drawn(head: str, module: Path) -> str:
    """A page of a table, which the module draws."""
    spec = importlib.util.spec_from_file_location(module.stem, module)
    assert spec is not None
    assert spec.loader is not None
    table: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    return head + "\n" + "\n".join(table.lines()) + "\n"


def main() -> int:
    status = 0
    pages = {
        TARGET: text(),
        DELIVERY: drawn(DELIVERY_HEAD, DELIVERY_TABLE),
        OUTCOMES: drawn(OUTCOMES_HEAD, OUTCOMES_TABLE),
    }
    for target, content in pages.items():
        if "--check" not in sys.argv:
            target.write_text(content)
        elif not target.exists() or target.read_text() != content:
            print(f"docs/{target.name} differs from what it is made of: run `make docs`")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

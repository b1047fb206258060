"""docs/format.md from the docstrings of the modules that know the bytes, and docs/delivery.md from
the table of what may become of a message; --check compares only."""

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
]
HEAD = """# File formats

Generated from the docstrings of the modules named below by `make docs`; change it there.
A release reads the versions that its formats name and refuses others.
"""

DELIVERY = ROOT / "docs" / "delivery.md"
TABLE = ROOT / "engine" / "delivery" / "delivery_table.py"
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


def text() -> str:
    """The whole document."""
    parts = [HEAD]
    for title, source in SOURCES:
        docstring = ast.get_docstring(ast.parse((ROOT / source).read_text())) or ""
        parts.append(f"## {title}\n\n`{source}`\n\n```text\n{docstring.strip()}\n```\n")
    return "\n".join(parts)


def delivery() -> str:
    """The page of the table."""
    spec = importlib.util.spec_from_file_location("delivery_table", TABLE)
    assert spec is not None
    assert spec.loader is not None
    table: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    return DELIVERY_HEAD + "\n" + "\n".join(table.lines()) + "\n"


def main() -> int:
    status = 0
    for target, content in ((TARGET, text()), (DELIVERY, delivery())):
        if "--check" not in sys.argv:
            target.write_text(content)
        elif not target.exists() or target.read_text() != content:
            print(f"docs/{target.name} differs from what it is made of: run `make docs`")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

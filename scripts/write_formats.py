"""docs/format.md from the docstrings of the modules that know the bytes; --check compares only."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "format.md"
SOURCES = [
    ("Journal", "journal/format.py"),
    ("Engine: journal records, record pages, checkpoints", "engine/records/format.py"),
    ("Data file", "engine/pages/data_file.py"),
    ("Block", "quire/block/format.py"),
    ("Large transaction's file", "ltds/format.py"),
]
HEAD = """# File formats

Generated from the docstrings of the modules named below by `make docs`; change it there.
A release reads the versions that its formats name and refuses others.
"""


def text() -> str:
    """The whole document."""
    parts = [HEAD]
    for title, source in SOURCES:
        docstring = ast.get_docstring(ast.parse((ROOT / source).read_text())) or ""
        parts.append(f"## {title}\n\n`{source}`\n\n```text\n{docstring.strip()}\n```\n")
    return "\n".join(parts)


def main() -> int:
    if "--check" in sys.argv:
        if not TARGET.exists() or TARGET.read_text() != text():
            print("docs/format.md differs from the format modules: run `make docs`")
            return 1
        return 0
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())

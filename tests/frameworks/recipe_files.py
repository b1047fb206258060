"""The files of docs/frameworks.md, as a reader would write them down."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.source_tree import ROOT

TEXT = (ROOT / "docs" / "frameworks.md").read_text()
# The first line of a file is its name.
NAMED = re.compile(r"^```python\n# ([\w./]+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(heading: str) -> str:
    """What stands under a heading."""
    found = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section {heading!r}"
    return found[1]


def blocks(heading: str) -> list[str]:
    """The programs of a section, those with a file's name too."""
    return _BLOCK.findall(section(heading))


def write_files(heading: str, folder: Path) -> list[str]:
    """Write the files of a section into a folder; their names."""
    files = NAMED.findall(section(heading))
    for name, program in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(program)
    return [name for name, _ in files]


def environment(folder: Path) -> dict[str, str]:
    """Of a process there that has this tree's Quire, and leaves nothing in anybody's home."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": path, "HOME": str(folder), "PYTHONUNBUFFERED": "1"}

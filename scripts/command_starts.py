"""The modules that each command of `quire` loads, and the processor time of its start.

    python -m scripts.command_starts          prints both for each command
    python -m scripts.command_starts --write  writes tests/command_modules.tsv anew

The tests hold the commands to that list: no further library, and no more modules of Quire.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import quire

ROOT: Final = Path(__file__).resolve().parent.parent
TABLE: Final = ROOT / "tests" / "command_modules.tsv"
TIMES: Final = 3  # that each command is started, for the median of its time
LIBRARIES: Final = (
    "asyncio", "cronsim", "greenlet", "lark", "msgspec", "numpy", "prometheus_client", "pyarrow",
    "sortedcontainers", "ssl", "xxhash",
)  # fmt: skip
COMMANDS: Final = (
    ("create-queue", "more"),
    ("subscribe", "news", "further"),
    ("put", "jobs", "one"),
    ("put", "news", "one"),
    ("queues",),
    ("status",),
    ("status", "--check"),
    ("browse", "jobs"),
    ("get", "jobs"),
    ("get", "news/audit"),
    ("transactions",),
    ("schedules",),
    ("catalog",),
    ("verify",),
    ("dump",),
    ("checkpoint",),
    ("purge", "jobs"),
    ("serve", "--linger", "0"),
    ("serve", "--linger", "0", "--metrics", "127.0.0.1:0"),
)
_CHILD: Final = """
import json, sys, time
from quire.cli import main
status = main(sys.argv[1:])
print("\\n" + json.dumps([status, time.process_time(), sorted(sys.modules)]))
"""


class CommandStart(NamedTuple):
    """The modules that one command has loaded, and the processor time of its process."""

    words: tuple[str, ...]
    modules: int  # of Quire
    libraries: tuple[str, ...]
    seconds: float

    @property
    def name(self) -> str:
        """The command as it is typed, without the store."""
        return " ".join(self.words)


def starts(commands: Sequence[tuple[str, ...]], times: int = 1) -> Iterator[CommandStart]:
    """Start each command in a process of its own, each time on a new store."""
    for words in commands:
        found = []
        for _ in range(times):
            with tempfile.TemporaryDirectory() as folder:
                path = str(Path(folder, "shop.quire"))
                with quire.open(path, share=False) as store:
                    store.create_queue("jobs", kind="work")
                    store.create_queue("news", kind="topic")
                    store.subscribe("news", "audit")
                    for name in ("jobs", "news"):
                        store.put(name, b"one")
                found.append(_start(path, words))
        yield found[0]._replace(seconds=median(each.seconds for each in found))


def _start(path: str, words: tuple[str, ...]) -> CommandStart:
    line = [sys.executable, "-c", _CHILD, words[0], path, *words[1:]]
    child = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    status, seconds, loaded = json.loads(child.stdout.splitlines()[-1])
    assert status == 0, (words, child.stderr)
    own = [name for name in loaded if name.startswith("quire.")]
    libraries = tuple(name for name in LIBRARIES if name in loaded)
    return CommandStart(words, len(own), libraries, seconds)


def table() -> dict[str, tuple[int, tuple[str, ...]]]:
    """The list: of each command how many modules of Quire, and which libraries."""
    rows = (line.split("\t") for line in TABLE.read_text().splitlines()[1:])
    return {name: (int(modules), tuple(libraries.split())) for name, modules, libraries in rows}


def main() -> None:
    """Print, and perhaps write, the list."""
    lines = ["command\tmodules of Quire, at most\tlibraries"]
    print(f"{'command':<45} {'modules':>7} {'ms':>6}  libraries")
    for start in starts(COMMANDS, TIMES):
        libraries = " ".join(start.libraries)
        lines.append(f"{start.name}\t{start.modules}\t{libraries}")
        print(f"{start.name:<45} {start.modules:>7} {start.seconds * 1000:>6.0f}  {libraries}")
    if "--write" in sys.argv[1:]:
        TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

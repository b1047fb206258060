"""Run the checks and all tests but the slow ones, in parts, all at the same time.

Each part is a process. One of the parts after another would leave processors idle for most of the
time. What a part says is shown when it has ended,
and what has failed in any of them once more at the end.

The stores of the parts that are not about a disk are in memory, where there is room for them: much
of the time of a small test is the file system's. Those of the engine and its parts are on the disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ["-m", "pytest", "--durations=10"]
# What waits for other processes most of the time.
PROCESSES = ["tests/remote", "tests/aio"]
# What holds for every form of a store.
FORMS = ["tests/behaviour"]
# All at once also on two processors: much of a part's time is waiting, for the disk and for other
# processes. Spark alone has two threads of its own.
PARTS = {
    "Spark": ["tests", "-m", "not slow and spark"],
    "several processes": [*PROCESSES, "-m", "not slow and not spark"],
    "every form of a store": [*FORMS, "-m", "not slow and not spark"],
    "the engine's power failures and faults": ["tests/engine", "-m", "not slow and crash"],
    "the engine": ["tests/engine", "-m", "not slow and not crash"],
    "all else": [
        "tests", "--ignore=tests/engine", *(f"--ignore={each}" for each in PROCESSES + FORMS),
        "-m", "not slow and not spark"
    ],
}  # fmt: skip


# Of these the stores are on the disk.
ON_DISK = {"the engine's power failures and faults", "the engine", "all else"}
IN_MEMORY = Path("/dev/shm")
ROOM_BYTES = 6 << 30  # the stores of a test that needs most, times the parts, and to spare


def commands(seed: str, memory: str | None) -> dict[str, list[str]]:
    """What each part runs; `memory`: a directory there."""
    newest = [sys.executable, "scripts/test_newest.py", "--seed", seed]
    found = {"the checks": ["make", "--no-print-directory", "check"], "the newest Python": newest}
    for name, arguments in PARTS.items():
        found[name] = [sys.executable, *PYTEST, *arguments, "--seed", seed]
        if memory is not None and name not in ON_DISK:
            found[name].append(f"--basetemp={memory}/{name.replace(' ', '-')}")
    return found


def run(command: list[str]) -> tuple[int, float, bytes]:
    """One part: its exit status, minutes, and what it says."""
    began = time.monotonic()
    # What pytest has made of a module serves the other parts, and what a test starts.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.returncode, (time.monotonic() - began) / 60, done.stdout


def main() -> int:
    """The exit status: 0 if all parts passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="1", help="where all randomness starts")
    seed = parser.parse_args().seed
    memory = None
    if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ROOM_BYTES:
        memory = tempfile.mkdtemp(prefix="quire-tests-", dir=IN_MEMORY)
    try:
        return run_all(commands(seed, memory))
    finally:
        if memory is not None:
            shutil.rmtree(memory, ignore_errors=True)


def run_all(parts: dict[str, list[str]]) -> int:
    """All at once; 0 if they passed."""
    failed = 0
    failures: list[str] = []
    with ThreadPoolExecutor(len(parts)) as pool:
        running = {pool.submit(run, command): name for name, command in parts.items()}
        for part in as_completed(running):
            status, minutes, said = part.result()
            failed |= status
            print(f"\n{running[part].capitalize()}, {minutes:.1f} minutes:\n", flush=True)
            sys.stdout.buffer.write(said)
            sys.stdout.flush()
            lines = said.decode(errors="replace").splitlines()
            failures += [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if failures:
        print("\nWhat has failed in all:\n", *failures, sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

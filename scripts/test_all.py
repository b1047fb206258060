"""Run all tests but the slow ones, in parts, all at the same time.

Each part is a process. One of the parts after another would leave processors idle for most of the
time. What a part says is shown when it has ended.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
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


def run(arguments: list[str], seed: str) -> tuple[int, float, bytes]:
    """One part: its exit status, minutes, and what it says."""
    command = [sys.executable, *PYTEST, *arguments, "--seed", seed]
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.returncode, (time.monotonic() - began) / 60, done.stdout


def main() -> int:
    """The exit status: 0 if all parts passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="1", help="where all randomness starts")
    seed = parser.parse_args().seed
    failed = 0
    with ThreadPoolExecutor(len(PARTS)) as pool:
        parts = {pool.submit(run, arguments, seed): name for name, arguments in PARTS.items()}
        for part in as_completed(parts):
            status, minutes, said = part.result()
            failed |= status
            print(f"\nTests of {parts[part]}, {minutes:.1f} minutes:\n", flush=True)
            sys.stdout.buffer.write(said)
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

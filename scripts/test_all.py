"""Run the checks and all tests but the slow ones, in parts, all at the same time.

Each part is a process. One of the parts after another would leave processors idle for most of the
time. What a part says stands in `build/tests` while it runs, and is shown when it has ended; what
has failed in any of them is shown once more at the end. A part that has not ended after
`--minutes` is ended, and fails. So does one with a test that takes a quarter of an hour, and shows
where each of its threads is.

The stores of the parts that are not about a disk are in memory, where there is room for them: much
of the time of a small test is the file system's. Those of the engine and its parts are on the disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAID = ROOT / "build" / "tests"
# Where a test hangs is told long before its part is ended.
HANGS = ["-o", "faulthandler_timeout=900", "-o", "faulthandler_exit_on_timeout=true"]
PYTEST = ["-m", "pytest", "--durations=10", *HANGS]
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
# It waits most, one test after another: the others take what it leaves of the processors.
FIRST = "Spark"
# Of these the stores are on the disk.
ON_DISK = {"the engine's power failures and faults", "the engine", "all else"}
IN_MEMORY = Path("/dev/shm")
ROOM_BYTES = 6 << 30  # the stores of a test that needs most, times the parts, and to spare


def commands(seed: str, memory: str | None) -> dict[str, list[str]]:
    """What each part runs; `memory`: a directory there."""
    newest = [sys.executable, "scripts/test_newest.py", "--seed", seed]
    found = {"the checks": ["make", "--no-print-directory", "check"], "the newest Python": newest}
    for name, arguments in PARTS.items():
        found[name] = [sys.executable, "-u", *PYTEST, *arguments, "--seed", seed]
        if memory is not None and name not in ON_DISK:
            found[name].append(f"--basetemp={memory}/{name.replace(' ', '-')}")
    return {
        name: command if name == FIRST else ["nice", "-n", "5", *command]
        for name, command in found.items()
    }


def run(
    name: str, command: list[str], minutes: float, started: list[subprocess.Popen[bytes]]
) -> tuple[int, float, bytes]:
    """One part: its exit status, minutes, and what it says; `started` has its process."""
    began = time.monotonic()
    # What pytest has made of a module serves the other parts, and what a test starts.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    said = SAID / f"{name.replace(' ', '-')}.txt"
    with said.open("wb") as output, subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as part:  # fmt: skip
        started.append(part)
        try:
            part.wait(minutes * 60)
        except subprocess.TimeoutExpired:
            end([part])
            output.write(f"\nFAILED {name}: had not ended after {minutes:g} minutes\n".encode())
    return part.returncode, (time.monotonic() - began) / 60, said.read_bytes()


def end(parts: list[subprocess.Popen[bytes]]) -> None:
    """Kill those that have not ended, with what they have started."""
    for part in parts:
        if part.poll() is None:
            os.killpg(part.pid, signal.SIGKILL)


def main() -> int:
    """The exit status: 0 if all parts passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="1", help="where all randomness starts")
    parser.add_argument("--minutes", type=float, default=60, help="after which a part is ended")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the parts end with this, too
    SAID.mkdir(parents=True, exist_ok=True)
    memory = None
    if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ROOM_BYTES:
        memory = tempfile.mkdtemp(prefix="quire-tests-", dir=IN_MEMORY)
    try:
        return run_all(commands(asked.seed, memory), asked.minutes)
    finally:
        if memory is not None:
            shutil.rmtree(memory, ignore_errors=True)


def run_all(parts: dict[str, list[str]], minutes: float) -> int:
    """All at once; 0 if they passed."""
    failed = 0
    failures: list[str] = []
    started: list[subprocess.Popen[bytes]] = []
    with ThreadPoolExecutor(len(parts)) as pool:
        running = {
            pool.submit(run, name, command, minutes, started): name
            for name, command in parts.items()
        }
        try:
            for part in as_completed(running):
                status, took, said = part.result()
                failed |= status
                print(f"\n{running[part].capitalize()}, {took:.1f} minutes:\n", flush=True)
                sys.stdout.buffer.write(said)
                sys.stdout.flush()
                lines = said.decode(errors="replace").splitlines()
                failures += [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        except KeyboardInterrupt:
            end(started)
            raise
    if failures:
        print("\nWhat has failed in all:\n", *failures, sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

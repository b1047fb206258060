"""Run the checks and the tests in parts, each part a process; with --long what takes long.

The parts of `make test` run all at the same time: one after another would leave processors idle for
most of the time. Those of `make test-long` run `--at-once` at a time. The output of a part stands
in `build/tests` while it runs, and is shown when it has ended. What has failed in any of them is
shown again at the end, after the processor seconds of each part with its children. A part that has
not ended after `--minutes` is ended, and fails. So is one with a test that takes a quarter of an
hour, which shows where each of its threads is.

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
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from scripts.commit_seed import commit_seed
from scripts.test_parts import FIRST, LONG, QUICK, TestsOfPart

ROOT = Path(__file__).resolve().parents[1]
OUTPUT_FOLDER = ROOT / "build" / "tests"
# Where a test hangs is shown long before its part is ended.
HANGS = ["-o", "faulthandler_timeout=900", "-o", "faulthandler_exit_on_timeout=true"]
PYTEST = [sys.executable, "-u", "-m", "pytest", "--durations=10", *HANGS]
IN_MEMORY = Path("/dev/shm")
ROOM_BYTES = 6 << 30  # the stores of a test that needs most, times the parts, and to spare


def test_command(name: str, part: TestsOfPart, seed: str, memory: str | None) -> list[str]:
    """Return the command of a part; `memory`: a directory there."""
    command = [*PYTEST, *part.arguments(), "--seed", seed]
    command.append(f"--processor-times={OUTPUT_FOLDER / name}.tsv")
    if memory is not None and not part.on_disk:
        command.append(f"--basetemp={memory}/{name}")
    return command


def commands(long: bool, seed: str, memory: str | None) -> dict[str, list[str]]:
    """Return the command of each part by its name."""
    parts = LONG if long else QUICK
    found = {name: test_command(name, part, seed, memory) for name, part in parts.items()}
    if long:
        found["newest"] = [sys.executable, "scripts/test_newest.py", "--seed", seed]
        found["oldest-spark"] = [sys.executable, "scripts/test_spark_versions.py", "--oldest"]
    else:
        found = {"checks": ["make", "--no-print-directory", "check"], **found}
    return {
        name: command if name in FIRST else ["nice", "-n", "5", *command]
        for name, command in found.items()
    }


class EndedPart(NamedTuple):
    """A part that has ended."""

    status: int
    minutes: float
    processor_seconds: float  # with those of its children
    output: bytes


def run(
    name: str, command: list[str], minutes: float, started: list[subprocess.Popen[bytes]]
) -> EndedPart:
    """Run one part; `started` gets its process."""
    began = time.monotonic()
    # What pytest has made of a module serves the other parts, and what a test starts.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    output_path = OUTPUT_FOLDER / f"{name}.txt"
    with output_path.open("wb") as output, subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as part:  # fmt: skip
        started.append(part)
        late = threading.Timer(minutes * 60, end, [[part]])
        late.start()
        _, status, usage = os.wait4(part.pid, 0)
        part.returncode = os.waitstatus_to_exitcode(status)
        late.cancel()
        took = (time.monotonic() - began) / 60
        if took >= minutes:
            output.write(f"\nFAILED {name}: had not ended after {minutes:g} minutes\n".encode())
    spent = max(usage.ru_utime + usage.ru_stime, seconds_of_tests(name))
    return EndedPart(part.returncode, took, spent, output_path.read_bytes())


def seconds_of_tests(name: str) -> float:
    """Return the processor seconds that a part's tests have noted, those of Spark's JVM too.

    That is not waited for, so the system does not count it for the part.
    """
    noted = OUTPUT_FOLDER / f"{name}.tsv"
    lines = noted.read_text().splitlines() if noted.exists() else []
    return sum(float(line.partition("\t")[0]) for line in lines)


def end(parts: list[subprocess.Popen[bytes]]) -> None:
    """Kill those that have not ended, with what they have started."""
    for part in parts:
        if part.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(part.pid, signal.SIGKILL)


def main() -> int:
    """The exit status: 0 if all parts passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="the parts of `make test-long`")
    parser.add_argument("--part", action="append", help="only this part (may be repeated)")
    parser.add_argument("--list", action="store_true", help="list the parts, run nothing")
    parser.add_argument("--seed", help="where all randomness starts (default: the commit's)")
    parser.add_argument("--minutes", type=float, default=60, help="after which a part is ended")
    parser.add_argument("--at-once", type=int, help="how many parts run at a time")
    options = parser.parse_args()
    seed = options.seed or str(commit_seed())
    names = list(commands(options.long, seed, None))
    if options.list:
        print("\n".join(names))
        return 0
    if unknown := sorted(set(options.part or []) - set(names)):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(names)}")
    print(f"Seed {seed}; SEED={seed} runs the same again", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the parts end with this, too
    OUTPUT_FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        (OUTPUT_FOLDER / f"{name}.tsv").unlink(missing_ok=True)
    memory = None
    if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ROOM_BYTES:
        memory = tempfile.mkdtemp(prefix="quire-tests-", dir=IN_MEMORY)
    parts = commands(options.long, seed, memory)
    parts = {name: parts[name] for name in options.part or names}
    at_once = options.at_once or ((os.cpu_count() or 1) if options.long else len(parts))
    try:
        return run_all(parts, options.minutes, at_once)
    finally:
        if memory is not None:
            shutil.rmtree(memory, ignore_errors=True)


def run_all(parts: dict[str, list[str]], minutes: float, at_once: int) -> int:
    """Run so many at a time; 0 if all passed."""
    failed = 0
    failures: list[str] = []
    started: list[subprocess.Popen[bytes]] = []
    spent: dict[str, float] = {}
    with ThreadPoolExecutor(at_once) as pool:
        running = {
            pool.submit(run, name, command, minutes, started): name
            for name, command in parts.items()
        }
        try:
            for part in as_completed(running):
                ended = part.result()
                failed |= ended.status
                spent[running[part]] = ended.processor_seconds
                print(f"\n{running[part].capitalize()}, {ended.minutes:.1f} minutes:\n", flush=True)
                sys.stdout.buffer.write(ended.output)
                sys.stdout.flush()
                lines = ended.output.decode(errors="replace").splitlines()
                failures += [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        except KeyboardInterrupt:
            for future in running:
                future.cancel()
            end(started)
            raise
    each = ", ".join(f"{name} {spent[name]:.0f}" for name in parts)
    print(f"\nProcessor seconds: {each}; {sum(spent.values()):.0f} in all", flush=True)
    if failures:
        print("\nWhat has failed in all:\n", *failures, sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

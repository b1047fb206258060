"""Run all tests but the slow ones, in two halves at the same time: those that need Spark, the rest.

Each half is one process of pytest. Together they use two processors; one after the other they would
leave one of them idle for most of the time. What a half says is shown when it has ended, the
half that ended first first.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
HALVES = {"Spark": "not slow and spark", "all but Spark": "not slow and not spark"}
PAUSE_SECONDS = 0.5


def start(marks: str, seed: str, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """One half, whose words go to the file."""
    command = [sys.executable, "-m", "pytest", "-m", marks, "--seed", seed, "--durations=10"]
    return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)


def main() -> int:
    """The exit status: 0 if both halves passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="1", help="where all randomness starts")
    seed = parser.parse_args().seed
    failed = 0
    with tempfile.TemporaryDirectory(prefix="quire-tests-") as folder:
        outputs = {name: Path(folder, str(number)) for number, name in enumerate(HALVES)}
        running: dict[str, subprocess.Popen[bytes]] = {}
        began = time.monotonic()
        try:
            for name, marks in HALVES.items():
                with outputs[name].open("wb") as output:
                    running[name] = start(marks, seed, output)
            while running:
                time.sleep(PAUSE_SECONDS)
                for name in [name for name, half in running.items() if half.poll() is not None]:
                    failed |= running.pop(name).returncode
                    minutes = (time.monotonic() - began) / 60
                    print(f"\n{name}, {minutes:.1f} minutes:\n", flush=True)
                    sys.stdout.buffer.write(outputs[name].read_bytes())
                    sys.stdout.flush()
        finally:
            for half in running.values():
                half.terminate()
                half.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Build the compiled form in a copy of the checkout, and run a slice of the tests on it there.

The checkout stays pure Python. Without a C compiler or Python's headers nothing is built, which is
said, and is no failure: pure Python is what Quire promises, and what all tests run on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".*", "*.so", "*.egg-info", "__pycache__", "build", "dist", "results", "spark-warehouse"
)

# The formats, the journal, the blocks, and of the engine what goes through all of its layers. Power
# failures are about which calls are made in which order, which compiling does not change.
SLICE = (
    "tests/test_compiled.py",
    "tests/test_intervals.py",
    "tests/block",
    "tests/formats",
    "tests/journal",
    "tests/engine/test_bad_input.py",
    "tests/engine/test_interrupt.py",
    "tests/engine/test_prepared.py",
    "tests/engine/test_queues.py",
    "tests/engine/test_space.py",
    "tests/engine/test_state_machine.py",
    "tests/engine/test_store.py",
    "tests/engine/test_transaction.py",
    "tests/remote/test_arguments.py",
)


def missing() -> str | None:
    """What the build lacks on this machine."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler})"
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return None if headers.is_file() else f"no {headers}"


def main() -> int:
    """The exit status: 0 also where nothing could be built."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="1", help="where all randomness starts")
    seed = parser.parse_args().seed
    lacking = missing()
    if lacking is not None:
        print(f"SKIPPED: the compiled form was not built or tested: {lacking}")
        return 0
    with tempfile.TemporaryDirectory(prefix="quire-compiled-") as folder:
        copy = Path(folder, "quire")
        shutil.copytree(ROOT, copy, symlinks=True, ignore=LEFT_OUT)
        environment = {**os.environ, "PYTHONPATH": str(copy), "QUIRE_COMPILE": "1"}
        build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        chosen = ["-m", "not slow and not crash", *SLICE]
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        for command in (build, [*tests, "--seed", seed, *chosen]):
            print("compiled:", *command[1:3], flush=True)
            done = subprocess.run(command, cwd=copy, env=environment, check=False)
            if done.returncode:
                return done.returncode
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

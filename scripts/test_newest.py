"""Run a slice of the tests in the newest Python of this machine, in an environment of its own.

The other tests run in the Python of `.venv`. Where that is the newest one, there is nothing to do,
and this says so. The slice is what new interpreters have broken: signals and interrupts within
calls, the stack, what objects take, files and locks, and a store's forms in one process. It takes
no Spark.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv" / "newest"
# What these tests import beside Quire's own needs; most of the extra `test` is for others.
PACKAGES = ["pytest", "hypothesis", "pytest-benchmark", "psutil", "msgpack"]
NAMED = re.compile(r"python3\.(\d+)$")
TESTS = [
    *(f"tests/engine/test_{name}.py" for name in (
        "attributes", "calls", "deep_stack", "dropped_transactions", "interrupted_calls",
        "ownership", "queues", "reentrant", "sequencer",
    )),
    *(f"tests/test_{name}.py" for name in (
        "codecs", "env", "interface", "interpreter", "light_imports",
    )),
    "tests/behaviour/test_values.py",
]  # fmt: skip


def newest() -> str | None:
    """The newest interpreter that is newer than this one: pyenv's, or on PATH."""
    folders = [*Path.home().glob(".pyenv/versions/*/bin"), *map(Path, os.get_exec_path())]
    found: list[tuple[int, Path]] = []
    for folder in folders:
        for program in folder.glob("python3.*"):
            named = NAMED.match(program.name)
            if named and int(named[1]) > sys.version_info.minor:
                found.append((int(named[1]), program))
    found.sort(key=lambda each: -each[0])  # of two of one version the first
    return next((str(program) for _, program in found if is_usable(program)), None)


def is_usable(program: Path) -> bool:
    """Return True if it can make an environment; what stands for one that is not chosen ends with
    127.
    """
    return subprocess.run([program, "-c", "import ensurepip, ssl"], check=False,
                          capture_output=True).returncode == 0  # fmt: skip


def installed(python: str) -> str:
    """The interpreter of the environment, made where there is none or another."""
    inside = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / "installed"
    content = "\n".join(
        [python, *((ROOT / name).read_text() for name in ("pyproject.toml", "constraints.txt"))]
    )
    if stamp.is_file() and stamp.read_text() == content:
        return str(inside)
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    pip = [str(inside), "-m", "pip", "install", "-qq", "-c", "constraints.txt"]
    for command in (
        [python, "-m", "venv", str(ENVIRONMENT)],
        [*pip, "pip", "setuptools", "wheel"],
        [*pip, "--no-build-isolation", "-e", ".", *PACKAGES],
    ):
        subprocess.run(command, cwd=ROOT, check=True)
    stamp.write_text(content)
    return str(inside)


def main() -> int:
    """The exit status: 0 if all passed, or there is no newer Python."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="1", help="where all randomness starts")
    parser.add_argument("--python", help="the interpreter, if not the newest that is found")
    options = parser.parse_args()
    python = options.python or newest()
    if python is None:
        version = ".".join(map(str, sys.version_info[:3]))
        print(f"No Python newer than {version} is on this machine: nothing more is tested.")
        return 0
    print(f"The newest Python here: {python}", flush=True)
    command = [installed(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    command += [
        "-m",
        "not long and not spark and not crash",
        "-k",
        "not joined",
        "--seed",
        options.seed,
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

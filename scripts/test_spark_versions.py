"""Try the Spark connector with several releases of PySpark, each in an environment of its own.

Each release runs `tests/spark/version_probe.py`, which tries every feature once. What comes out is
the table of docs/spark.md: a feature works, or is refused with the release that it needs; anything
else is a failure. With `--write` the page has what came out, without it has to be so already.

The environments are below `build/spark-versions`; `--environments` names another directory. Those
that are there are used as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "spark.md"
RELEASES = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")  # the last one of each that is supported
OLDEST = RELEASES[0]
FIRST_FEATURE = "batch reads and writes"
# What Quire itself needs; PySpark and what it brings are not those of the constraints file.
PACKAGES = (
    "cronsim",
    "greenlet",
    "lark",
    "msgspec",
    "numpy",
    "pyarrow",
    "sortedcontainers",
    "xxhash",
)
TABLE = re.compile(r"(?<=<!-- PySpark's releases -->\n)(?:\|[^\n]*\n)*")
NEEDS = "needs PySpark"


def python_of(release: str, environments: Path) -> str:
    """Return the interpreter of a release's environment, which is made if it is not there."""
    python = str(environments / release / "bin" / "python")
    if not Path(python).exists():
        pins = [
            line
            for line in (ROOT / "constraints.txt").read_text().splitlines()
            if line.partition("==")[0] in PACKAGES
        ]
        subprocess.run([sys.executable, "-m", "venv", environments / release], check=True)
        install = [python, "-m", "pip", "install", "-qq"]
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
            constraints.write("\n".join(pins))
            constraints.flush()
            packages = [f"pyspark[connect]=={release}", *PACKAGES]
            subprocess.run([*install, "-c", constraints.name, *packages], check=True)
    return python


def results_of(release: str, python: str, features: tuple[str, ...]) -> dict[str, str]:
    """Return what the probe says of each feature."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
    }
    with tempfile.TemporaryDirectory() as directory:
        command = [python, "-m", "tests.spark.version_probe", directory, *features]
        printed = subprocess.run(
            command, cwd=ROOT, env=environment, check=False, stdout=subprocess.PIPE, text=True
        ).stdout
    found = {}
    for line in printed.splitlines():
        if line.startswith('{"feature"'):
            result = json.loads(line)
            found[result["feature"]] = result["result"]
            print(f"PySpark {release}: {result['feature']}: {result['result']}", flush=True)
    if found.pop("PySpark", None) != release:
        raise SystemExit(f"PySpark {release}: the probe did not come to its end")
    return found


def table(results: dict[str, dict[str, str]]) -> str:
    """Return the table of the page."""
    releases = list(results)
    head = ["", *(release.rpartition(".")[0] for release in releases)]
    lines = [head, ["---"] * len(head)]
    lines += [
        [feature, *(results[release][feature] for release in releases)]
        for feature in results[releases[0]]
    ]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


def main() -> int:
    """Return the exit status: 0 if all is as the page says, or the page was written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="*", default=RELEASES, help="instead of all")
    parser.add_argument("--write", action="store_true", help="write the table of docs/spark.md")
    parser.add_argument("--oldest", action="store_true", help="one batch with the oldest release")
    parser.add_argument("--environments", type=Path, default=ROOT / "build" / "spark-versions")
    options = parser.parse_args()
    releases = (OLDEST,) if options.oldest else tuple(options.releases)
    features = (FIRST_FEATURE,) if options.oldest else ()
    results = {}
    for release in releases:
        python = python_of(release, options.environments)
        results[release] = results_of(release, python, features)
    wrong = [
        f"PySpark {release}: {feature}: {result}"
        for release, found in results.items()
        for feature, result in found.items()
        if result != "yes" and not result.startswith(NEEDS)
    ]
    print("\n".join(["", *wrong]))
    if wrong or releases != RELEASES:
        return bool(wrong)
    page, new = PAGE.read_text(), table(results)
    if options.write:
        PAGE.write_text(TABLE.sub(lambda _: new, page, count=1))
    elif TABLE.search(page)[0] != new:  # type: ignore[index]
        print("docs/spark.md has another table: write it by --write")
        return 1
    print(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())

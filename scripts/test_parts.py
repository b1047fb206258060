"""The parts of `make test` and of `make test-long`: which tests each of their processes runs.

Every test is in exactly one part of one of the two: those with the mark `long` in `make test-long`,
all others in `make test` (`tests/test_draws.py` computes that). What `make test` leaves out of the
others, because its seed does not draw it, two parts of `make test-long` run: `forms` and `cases`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
IN_ALL = ("--forms", "all", "--cases", "all")
# Mostly waiting for other processes.
PROCESSES = ("tests/remote", "tests/aio")
FORMS = ("tests/behaviour",)
# The two halves of the engine's tests take about as long.
ENGINE_FILES = tuple(
    str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests/engine").glob("test_*.py"))
)
ENGINE_TO_L = tuple(file for file in ENGINE_FILES if file < "tests/engine/test_m")
ENGINE_FROM_M = tuple(file for file in ENGINE_FILES if file not in ENGINE_TO_L)
# Other files need not be read for the tests with this mark.
ENGINE_CRASH = tuple(file for file in ENGINE_FILES if "mark.crash" in (ROOT / file).read_text())
# Of the repository as a whole: its shape, its pages, its commands.
TOP = tuple(str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").glob("test_*.py")))
# What stands around the engine.
AROUND = ("tests/archive", "tests/coordination", "tests/crash", "tests/examples", "tests/spark")
FRAMEWORKS = ("tests/frameworks", "tests/test_deployment.py")
DISTRIBUTIONS = ("tests/test_distributions.py",)
BENCHES = ("tests/bench",)
DEMO = ("tests/demo",)
SPARK = ("tests/spark", *DEMO)  # where tests with this mark are
INTERRUPTS = (
    "tests/engine/test_interrupted_calls.py",
    "tests/engine/test_interrupted_commits.py",
    "tests/engine/test_signals_in_calls.py",
    "tests/engine/test_volatile_interrupts.py",
    "tests/remote/test_interrupted.py",
    "tests/remote/test_interrupted_steps.py",
)


class TestsOfPart(NamedTuple):
    """The tests below `paths`, but for those below `without`, whose marks fulfil a condition."""

    paths: tuple[str, ...]
    marks: str
    without: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    on_disk: bool = False  # the stores of these tests are not in memory

    def arguments(self) -> list[str]:
        """Return pytest's arguments."""
        ignored = (f"--ignore={path}" for path in self.without)
        return [*self.paths, *ignored, "-m", self.marks, *self.options]

    def has(self, file: str, marks: Iterable[str]) -> bool:
        """Return True if a test of this file with these marks is in the part."""
        below = {file, *map(str, Path(file).parents)}
        names = {"long", "spark", "crash", "fuzz", "cases"}
        return (
            not below.isdisjoint(self.paths)
            and below.isdisjoint(self.without)
            and bool(eval(self.marks, {name: name in marks for name in names}))
        )


# All at once also on two processors: much of a part's time is waiting, for the disk and for other
# processes. Spark alone has two threads of its own.
QUICK = {
    "spark": TestsOfPart(SPARK, "not long and spark"),
    "processes": TestsOfPart(PROCESSES, "not long and not spark"),
    "forms": TestsOfPart(FORMS, "not long and not spark"),
    "engine-crash": TestsOfPart(
        ENGINE_CRASH, "not long and not spark and crash", on_disk=True
    ),
    "engine-to-l": TestsOfPart(
        ENGINE_TO_L, "not long and not spark and not crash", on_disk=True
    ),
    "engine-from-m": TestsOfPart(
        ENGINE_FROM_M, "not long and not spark and not crash", on_disk=True
    ),
    "around": TestsOfPart(AROUND, "not long and not spark", on_disk=True),
    "top": TestsOfPart(TOP, "not long and not spark", on_disk=True),
    "rest": TestsOfPart(
        ("tests",), "not long and not spark", ("tests/engine", *PROCESSES, *FORMS, *AROUND, *TOP),
        on_disk=True,
    ),
}  # fmt: skip
# They wait most, one test after another: the others take what they leave of the processors.
FIRST = ("spark", "engine-to-l", "engine-from-m", "around", "processes", "forms")

NAMED = (*FORMS, *FRAMEWORKS, *DISTRIBUTIONS, *BENCHES, *DEMO, *INTERRUPTS)
LONG = {
    "forms": TestsOfPart(FORMS, "long or not long", options=IN_ALL),
    "cases": TestsOfPart(("tests",), "cases and not long", FORMS, IN_ALL, on_disk=True),
    "interrupts": TestsOfPart(INTERRUPTS, "long", options=IN_ALL),
    "frameworks": TestsOfPart(FRAMEWORKS, "long", options=IN_ALL, on_disk=True),
    "distributions": TestsOfPart(DISTRIBUTIONS, "long", options=IN_ALL, on_disk=True),
    "benches": TestsOfPart(BENCHES, "long", options=IN_ALL, on_disk=True),
    "demo": TestsOfPart(DEMO, "long", options=IN_ALL, on_disk=True),
    "spark": TestsOfPart(SPARK, "long and spark", NAMED, IN_ALL),
    "processes": TestsOfPart(PROCESSES, "long and not spark", NAMED, IN_ALL),
    "rest": TestsOfPart(
        ("tests",), "long and not spark", (*NAMED, *PROCESSES), IN_ALL, on_disk=True
    ),
}  # fmt: skip

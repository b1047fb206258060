"""What all tests share: the seed, the number of rounds, the limits of Hypothesis, and Java.

    --seed N     where all randomness starts; drawn if not given, and printed
    --rounds N   how often a crash or fuzz test repeats its experiment (default 25)
    --forms F    the forms of a store that a test over several of them runs in: embedded and one
                 that the seed draws (drawn, the default), every one (all), or the one of this name
    --cases C    of a test with the mark `cases(n)` one case in n, which the seed draws (drawn, the
                 default), or every one (all)
    --processor-times FILE
                 to which a line for each test is appended: its processor seconds, and its id

A test takes the fixture `rng` (its own generator, from the seed and the test's name) and `rounds`.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import resource
import secrets
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from quire.env.os_platform import PORTABLE
from quire.testing import TALLY
from tests.kit.drawn_items import FORMS, left_out
from tests.kit.limits import Limits, limited
from tests.kit.processor_times import written

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_ROUNDS = 25
SLICE = 10
PROMISES = range(1, 15)

SEED = pytest.StashKey[int]()


# A shell that starts the tests in the background has them ignore Ctrl-C, which some of them send.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup("quire")
    group.addoption("--seed", type=int, default=None, help="where all randomness starts")
    group.addoption(
        "--rounds",
        type=int,
        default=DEFAULT_ROUNDS,
        help=f"repetitions of each crash or fuzz experiment (default {DEFAULT_ROUNDS})",
    )
    group.addoption(
        "--forms",
        choices=["drawn", "all", *FORMS],
        default="drawn",
        help="forms of a store: embedded and one that the seed draws (default), all, or this one",
    )
    group.addoption(
        "--cases",
        choices=["drawn", "all"],
        default="drawn",
        help="cases of a sweep: those that the seed draws (default), or all",
    )
    group.addoption("--processor-times", type=Path, help="a file for the seconds of each test")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed, hand it to Hypothesis, and set what Spark reads from the environment."""
    given: int | None = config.getoption("--seed")
    seed = secrets.randbits(32) if given is None else given
    config.stash[SEED] = seed
    # Before Hypothesis' own plugin is configured (hence tryfirst), which reads it from here.
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(seed)
    settings.register_profile(
        "quire",
        max_examples=config.getoption("--rounds"),
        deadline=None,  # a shared machine stalls at will
        database=None,  # the seed alone decides
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.load_profile("quire")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")


def repeat_with(config: pytest.Config) -> str:
    """The options that run the same experiments again."""
    options = " ".join(f"--{name} '{config.getoption(name)}'" for name in ("forms", "cases"))
    return f"--seed {config.stash[SEED]} --rounds {config.getoption('--rounds')} {options}"


def pytest_report_header(config: pytest.Config) -> str:
    """Name the seed before anything runs, so that a run that dies is repeatable too."""
    forms = "; portable forms of system calls" if PORTABLE else ""
    return f"seed: repeat with {repeat_with(config)}{forms}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Tell the simulated power failures and the memory; where a failure is read, the seed again."""
    if TALLY.power_failures:
        terminalreporter.write_line(
            f"simulated power failures: {TALLY.power_failures}, {TALLY.uncertain} of them with what"
            " a failed write or sync left"
        )
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        terminalreporter.write_line(f"repeat with {repeat_with(config)}", red=True)
    here, child = (
        resource.getrusage(who).ru_maxrss >> 10
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    terminalreporter.write_line(f"memory at most: {here} MiB here, {child} MiB in a child")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the seed does not draw, and refuse wrong promise numbers.

    And allow for what PySpark leaves open.
    """
    out = left_out(config, items, config.stash[SEED])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
    items[:] = [item for item in items if item.nodeid not in out]
    for item in items:
        for mark in item.iter_markers("promise"):
            if not mark.args or any(number not in PROMISES for number in mark.args):
                raise pytest.UsageError(f"{item.nodeid}: promise{mark.args} is not one of 1 to 14")
        if item.get_closest_marker("spark") is None and starts_spark(item):
            raise pytest.UsageError(f"{item.nodeid} starts Spark: give it the mark `spark`")
        if item.get_closest_marker("spark"):
            # PySpark leaves sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


def starts_spark(item: pytest.Item) -> bool:
    """Return True if the test has the session of Spark, and not a parameter of that name."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return "spark" in getattr(item, "fixturenames", ()) and "spark" not in parameters


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    """Write down what a test takes, its set-up too, where that is wanted.

    The session of Spark lives longer than a test, so its processes are counted as they live.
    """
    path = item.config.getoption("--processor-times")
    if path is None:
        return (yield)
    spark = item.get_closest_marker("spark") is not None
    with written(path, item.nodeid, of_descendants=spark):
        return (yield)


@cache
def _java_problem() -> str:
    """What scripts/check_java.py finds wrong; empty if Spark can start."""
    check = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "check_java.py")],
        capture_output=True,
        text=True,
        check=False,
    )
    return check.stderr.strip()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a Spark test that cannot run: a skip would look like success."""
    if item.get_closest_marker("spark") and _java_problem():
        pytest.fail(_java_problem(), pytrace=False)


MUCH_BYTES = 256 << 20
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc; musl has none
_kept_bytes = [0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Give back what the stores and simulated machines of earlier tests take, once it is much.

    They refer to each other in circles, and a disk in memory is large: the garbage collector, which
    counts objects, lets gigabytes of them stand.
    """
    with open("/proc/self/statm", "rb") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if resident - _kept_bytes[0] > MUCH_BYTES:
        gc.collect()
        if _trim is not None:
            _trim(0)
        with open("/proc/self/statm", "rb") as file:
            _kept_bytes[0] = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of this run."""
    return pytestconfig.stash[SEED]


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """A generator of this test's own: the same for one seed, whatever else runs."""
    return random.Random(f"{seed}:{request.node.nodeid}")


@pytest.fixture(scope="session")
def rounds(pytestconfig: pytest.Config) -> int:
    """How often a crash or fuzz test repeats its experiment."""
    value: int = pytestconfig.getoption("--rounds")
    return value


@pytest.fixture(scope="session")
def spread(rounds: int) -> int:
    """How many times further apart than in a long run the calls are at which the power fails.

    What every run tries is a slice of what `make crash` tries; the seed says which.
    """
    return SLICE if rounds <= DEFAULT_ROUNDS else 1


@pytest.fixture
def limits() -> Iterator[Limits]:
    """Sets limits to the end of a test, wherever they are used: `limits(CHUNK_BYTES=4096)`."""
    with ExitStack() as stack:

        def limit(**values: float | dict[str, int]) -> None:
            stack.enter_context(limited(values))

        yield limit


@pytest.fixture
def store_path(tmp_path: Path) -> str:
    """A path at which a store can be created."""
    return str(tmp_path / "store")

"""What `make test` draws from its seed, and that nothing is left out for ever."""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from scripts.commit_seed import OUTSIDE, PER_TURN, TURNS, commit_seed, seed_of
from scripts.test_parts import LONG, QUICK
from tests.conftest import starts_spark
from tests.engine.test_crash_workloads import WORKLOADS
from tests.kit.crashes import FAULTS, SHARE, all_cells, pick
from tests.kit.drawn_items import FORMS, Drawable, cases_left_out, forms_left_out
from tests.kit.draws import drawn, share
from tests.source_tree import ROOT, own_files

COMMITS = 20


def git(folder: Path, *arguments: str) -> str:
    """Return what git prints, in a folder, for some author."""
    author = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER")
              for what in ("NAME", "EMAIL")}  # fmt: skip
    return subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**os.environ, **author},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One with a line of 25 commits, of which the 10th merges a branch of five."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q", "-b", "main")
    for number in range(9):
        git(folder, "commit", "-q", "--allow-empty", "-m", f"main {number}")
    git(folder, "checkout", "-q", "-b", "side")
    for number in range(5):
        git(folder, "commit", "-q", "--allow-empty", "-m", f"side {number}")
    git(folder, "checkout", "-q", "main")
    git(folder, "merge", "-q", "--no-ff", "-m", "main 9", "side")
    for number in range(10, 25):
        git(folder, "commit", "-q", "--allow-empty", "-m", f"main {number}")
    return folder


def seeds_of(folder: Path) -> list[int]:
    """Return the seeds of the last commits of the main line, the oldest first."""
    commits = git(folder, "rev-list", "--first-parent", f"-{COMMITS}", "HEAD").split()
    return [commit_seed(folder, each) for each in reversed(commits)]


def random_seeds(rng: random.Random) -> list[int]:
    """Return the seeds of as many commits, of any hashes, from any number on."""
    first = rng.randrange(TURNS - COMMITS)
    return [seed_of(first + n, f"{rng.getrandbits(160):040x}") for n in range(COMMITS)]


def test_a_commit_has_one_seed_and_the_next_one_has_the_next_turn(repository: Path) -> None:
    """The turn counts the commits of the main line, whatever was merged; the rest is the hash's."""
    seeds = seeds_of(repository)
    assert seeds == seeds_of(repository)
    assert [seed // PER_TURN for seed in seeds] == list(range(6, 26))
    assert len({seed % PER_TURN for seed in seeds}) > COMMITS // 2
    assert commit_seed(repository) == seeds[-1]


def test_the_seed_of_part_of_a_history_is_its_hash(repository: Path, tmp_path: Path) -> None:
    """A shallow clone counts other numbers at each depth, so its turn is not a count."""
    seeds = set()
    for depth in ("1", "3"):
        clone = tmp_path / depth
        git(tmp_path, "clone", "-q", "--depth", depth, repository.as_uri(), str(clone))
        seeds.add(commit_seed(clone))
    number = int(git(repository, "rev-parse", "HEAD")[8:16], 16)
    assert seeds == {seed_of(number, git(repository, "rev-parse", "HEAD"))}


def test_outside_of_git_the_seed_is_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that is no clone, or where there is no git."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_seed(tmp_path) == OUTSIDE
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_seed(ROOT) == OUTSIDE


def test_over_twenty_commits_each_test_has_each_form(repository: Path, rng: random.Random) -> None:
    """Not only some test: each one, whatever its name. It holds for any four commits in a row."""
    names = [f"tests/{rng.getrandbits(32):x}.py::test" for _ in range(50)]
    others = FORMS[1:]
    for seeds in (seeds_of(repository), *(random_seeds(rng) for _ in range(50))):
        for name, start in itertools.product(names, range(COMMITS - len(others) + 1)):
            few = seeds[start : start + len(others)]
            assert {drawn(others, seed, name) for seed in few} == set(others)


def test_over_twenty_commits_each_crash_workload_has_each_fault(
    repository: Path, rng: random.Random
) -> None:
    """Any three commits in a row have all of them, and each commit each workload and each fault."""
    for seeds in (seeds_of(repository), *(random_seeds(rng) for _ in range(50))):
        runs = [set(pick(seed, WORKLOADS)) for seed in seeds]
        for start in range(COMMITS - SHARE + 1):
            assert set().union(*runs[start : start + SHARE]) == set(all_cells(WORKLOADS))
        for run in runs:
            assert {cell.workload for cell in run} == set(WORKLOADS)
            assert {cell.fault for cell in run} == set(FAULTS)


@pytest.mark.parametrize("parts", [1, 2, 3, 7, COMMITS])
def test_over_twenty_commits_each_case_has_its_turn(parts: int, rng: random.Random) -> None:
    """Each runs once in as many commits as there are parts; none of these commits has no case."""
    for count in (1, 2, 19, 100):
        cases = [f"case {number}" for number in range(count)]
        few = random_seeds(rng)[: min(parts, count)]
        shares = [share(cases, parts, seed, "test") for seed in few]
        assert all(shares)
        assert sorted(itertools.chain(*shares)) == sorted(cases)


def test_a_test_runs_embedded_and_in_one_more_form() -> None:
    """In one of those that it has; without an embedded one among them, in one."""
    has = {
        "tests/a.py::test_all": FORMS,
        "tests/a.py::test_some": FORMS[:3],
        "tests/a.py::test_joined": FORMS[1:3],
    }
    tests = [Drawable(f"{name}[{form}-x-1]", form) for name in has for form in has[name]]
    runs: dict[str, set[str]] = {name: set() for name in has}
    for turn in range(len(FORMS) - 1):
        out = forms_left_out(tests, turn * PER_TURN)
        for name, forms in has.items():
            left = {t.form for t in tests if t.function == name and t.id not in out if t.form}
            assert len(left) == (2 if FORMS[0] in forms else 1)
            assert FORMS[0] in left or FORMS[0] not in forms
            runs[name] |= left
    assert runs == {name: set(forms) for name, forms in has.items()}


def test_a_case_that_is_drawn_runs_in_its_forms() -> None:
    """Draws of forms and of cases do not get into each other's way."""
    tests = [
        Drawable(f"tests/a.py::test[{form}-{case}]", form, 5)
        for form in FORMS
        for case in range(10)
    ]
    for turn in range(5):
        out = cases_left_out(tests, turn * PER_TURN)
        left = [test for test in tests if test.id not in out]
        assert len({test.case for test in left}) == 2
        assert len(left) == 2 * len(FORMS)
        out |= forms_left_out(tests, turn * PER_TURN)
        assert len([test for test in tests if test.id not in out]) == 2 * 2


def test_of_the_tests_of_a_file_some_are_drawn() -> None:
    """With all their cases; others of the file, or of other files, do not count among them."""
    tests = [
        Drawable(f"tests/{file}.py::test_{number}[{case}]", parts_of_file=3)
        for file in "ab"
        for number in range(7)
        for case in range(2)
    ]
    others = [Drawable("tests/a.py::test_8"), Drawable("tests/a.py::test_9[0]", parts=2)]
    runs = []
    for turn in range(3):
        out = cases_left_out([*tests, *others], turn * PER_TURN)
        assert out.isdisjoint(test.id for test in others)
        left = [test for test in tests if test.id not in out]
        functions = {test.function for test in left}
        assert len(left) == 2 * len(functions)
        for file in "ab":
            assert len([each for each in functions if f"/{file}." in each]) in (2, 3)
        runs.append(functions)
    assert sorted(itertools.chain(*runs)) == sorted({test.function for test in tests})


def test_of_a_drawn_test_some_cases_are_drawn() -> None:
    """Each case runs once in as many turns as both draws have parts, and each turn has one."""
    tests = [
        Drawable(f"tests/a.py::test_{number}[{case}]", parts=2, parts_of_file=3)
        for number in range(6)
        for case in range(4)
    ]
    runs = []
    for turn in range(3 * 2):
        out = cases_left_out(tests, turn * PER_TURN)
        left = [test for test in tests if test.id not in out]
        assert len({test.function for test in left}) == 2
        assert len(left) == 2 * 2
        runs.append(left)
    assert sorted(itertools.chain(*runs)) == sorted(tests)


def test_of_the_tests_of_a_folder_some_are_drawn() -> None:
    """Those without cases of their own; long ones do not count among the others.

    What is named runs.
    """
    tests = [Drawable(f"tests/x/test_{n}.py::test", parts=4, is_long=n > 9) for n in range(13)]
    alone = Drawable("tests/y/test_1.py::test", parts=4)
    cases = [Drawable(f"tests/x/test_1.py::test_cases[{n}]", parts=2) for n in range(4)]
    runs = []
    for turn in range(4):
        out = cases_left_out([*tests, alone, *cases], turn * PER_TURN)
        left = [test for test in tests if test.id not in out]
        assert len([test for test in left if not test.is_long]) in (2, 3)
        assert alone.id not in out
        assert len(out.intersection(each.id for each in cases)) == 2
        named = cases_left_out([*tests, *cases], turn * PER_TURN, named=True)
        assert named == out.intersection(each.id for each in cases)
        runs.append([test for test in left if not test.is_long])
    assert sorted(itertools.chain(*runs)) == sorted(test for test in tests if not test.is_long)


@pytest.mark.cases(6)
def test_a_run_draws() -> None:
    """A run tells its seed, draws by it, and takes all where that is said."""

    def collected(*options: str) -> list[str]:
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", *options],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return sorted(line for line in run.stdout.splitlines() if "::" in line)

    file = "tests/behaviour/test_recipient.py"
    everything = collected(file, "--forms", "all")
    ids = [
        Drawable(i, form) for i in everything for form in FORMS if re.search(rf"\[{form}\b[^ ]", i)
    ]
    assert len(ids) == len(everything)
    out = forms_left_out(ids, 3 * PER_TURN)
    assert collected(file, "--seed", str(3 * PER_TURN)) == [i for i in everything if i not in out]
    one = f"{file}::{everything[-1].partition('::')[2]}"
    assert collected(one, "--seed", "1") == [one]


def test_every_test_has_its_part() -> None:
    """A test of any file with any marks is in one part of `make test`, or of `make test-long`.

    What is not drawn, in one more of the latter.
    """
    marks = ("long", "spark", "crash", "fuzz", "cases")
    for file in [str(path) for path in own_files("tests") if path.name.startswith("test_")]:
        marked = {mark for mark in marks if f"mark.{mark}" in (ROOT / file).read_text()}
        for has in itertools.product((False, True), repeat=len(marks)):
            these = list(itertools.compress(marks, has))
            if not marked.issuperset(these):
                continue
            quick = [name for name, part in QUICK.items() if part.has(file, these)]
            long = [name for name, part in LONG.items() if part.has(file, these)]
            whole = [name for name in long if name in ("forms", "cases")]
            if "long" in these:
                assert (len(quick), len(long)) == (0, 1), (file, these, quick, long)
            else:
                assert (len(quick), long) == (1, whole), (file, these, quick, long)
            if "cases" in these:
                assert len(long) == 1, (file, these, long)


def test_who_starts_spark_has_the_mark() -> None:
    """A part of tests without it would start a Java machine of its own."""
    item = SimpleNamespace(fixturenames=["tmp_path", "spark"])
    assert starts_spark(cast("pytest.Item", item))
    item.callspec = SimpleNamespace(params={"spark": 1})
    assert not starts_spark(cast("pytest.Item", item))
    assert not starts_spark(cast("pytest.Item", SimpleNamespace(fixturenames=["tmp_path"])))


@pytest.mark.parametrize("name", [*QUICK, *LONG])
def test_a_part_is_of_folders_and_files(name: str) -> None:
    """A path that is gone would leave its part without tests."""
    for part in (parts[name] for parts in (QUICK, LONG) if name in parts):
        assert [path for path in (*part.paths, *part.without) if not (ROOT / path).exists()] == []

"""Leave out what a run's seed does not draw: forms of a store, and cases of a sweep.

LO1  A test that runs over several forms of a store runs embedded, if that is one of them, and in
     one more form. So it has run in each over as many consecutive turns as there are others (DR1).
LO2  Of a test with the mark `cases(n)` about one case in n runs, and over n turns each.
LO3  Of the tests of a file that have the mark `cases(n, of_file=True)` about one in n runs, and
     over n turns each. It is for long tests of which several go through the same code: power
     failures at every call, micro-batches of Spark. One that has the mark `cases(m)` too is drawn
     so, and of its cases one in m runs then: each of them over n * m turns.
LO4  Tests with the mark `cases(n)` that have but one case, in files without a mark, are drawn so
     among those of their folder: models, fuzzers and sweeps in a loop.

At least one of a test's cases, a file's tests and a folder's tests runs, those that are `long`
apart. A test with the mark `every_form`, or one that is named with its parameters, is never left
out; nor do LO3 and LO4 leave one out that is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import pytest

from tests.kit.draws import drawn, share

EMBEDDED = "embedded"
FORMS = (
    EMBEDDED,
    "joined",
    "elected",
    "asyncio",
    "asyncio joined",
    "network",
    "asyncio network",
)
# Fixtures whose parameter is a form. A `pair` has a store in this form beside an embedded one.
ARGUMENTS = ("store", "pair", "plain_store")


class Drawable(NamedTuple):
    """What a draw knows of a test."""

    id: str
    form: str | None = None
    parts: int | None = None  # of its mark `cases`
    parts_of_file: int | None = None  # of its mark `cases` with `of_file`
    is_long: bool = False

    @property
    def file(self) -> str:
        """The file that it stands in."""
        return self.id.partition("::")[0]

    @property
    def folder(self) -> str:
        """The folder of the file."""
        return self.file.rpartition("/")[0]

    @property
    def function(self) -> str:
        """The test without its parameters."""
        return self.id.partition("[")[0]

    @property
    def case(self) -> str:
        """The test with its parameters, but for the form of a store."""
        words = self.id.removesuffix("]").partition("[")[2].split("-")
        if self.form in words:
            words.remove(self.form)
        return f"{self.function}[{'-'.join(words)}]"


class Group(NamedTuple):
    """Tests or cases of which a run has one in so many."""

    name: str
    parts: int
    is_long: bool
    turns: int = 1  # that go by between one draw and the next


def drawable(item: pytest.Item) -> Drawable:
    """Return what a draw knows of a test."""
    if item.get_closest_marker("every_form"):
        return Drawable(item.nodeid)  # and in each turn
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    forms = (parameters[name] for name in ARGUMENTS if parameters.get(name) in FORMS)
    parts: dict[bool, int] = {}
    for mark in item.iter_markers("cases"):  # that of the test is before that of its file
        parts.setdefault(mark.kwargs.get("of_file", False), *mark.args)
    is_long = item.get_closest_marker("long") is not None
    return Drawable(item.nodeid, next(forms, None), parts.get(False), parts.get(True), is_long)


def forms_left_out(tests: Iterable[Drawable], seed: int) -> set[str]:
    """Return the ids of the tests that LO1 leaves out."""
    forms: dict[str, dict[str, str]] = defaultdict(dict)
    for test in tests:
        if test.form:
            forms[test.case][test.form] = test.id
    out: set[str] = set()
    for case, ids in forms.items():
        others = [form for form in FORMS if form in ids and form != EMBEDDED]
        out.update(ids[form] for form in others if form != drawn(others, seed, case))
    return out


def groups(tests: Iterable[Drawable], *, named: bool = False) -> dict[Group, dict[str, set[str]]]:
    """Return what is drawn among what: ids by the test, or by the case of a test.

    `named`: the tests are named, and only their cases are drawn.
    """
    tests = list(tests)
    cases: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        cases[test.function].add(test.case)
    found: dict[Group, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for test in tests:
        of_file, has_cases = test.parts_of_file, len(cases[test.function]) > 1
        if test.parts and has_cases:
            among = Group(test.function, test.parts, test.is_long, of_file or 1)
            found[among][test.case].add(test.id)
        if of_file and not named:
            found[Group(test.file, of_file, test.is_long)][test.function].add(test.id)
        elif test.parts and not has_cases and not named:
            found[Group(test.folder, test.parts, test.is_long)][test.function].add(test.id)
    return found


def cases_left_out(tests: Iterable[Drawable], seed: int, *, named: bool = False) -> set[str]:
    """Return the ids of the tests that LO2, LO3 and LO4 leave out."""
    out: set[str] = set()
    for group, ids in groups(tests, named=named).items():
        for each in ids.keys() - share(list(ids), group.parts, seed // group.turns, group.name):
            out |= ids[each]
    return out


def left_out(config: pytest.Config, items: Iterable[pytest.Item], seed: int) -> set[str]:
    """Return the ids of the tests that this run leaves out."""
    if any("[" in each for each in config.args):
        return set()
    tests = [drawable(item) for item in items]
    forms = config.getoption("--forms")
    out: set[str] = set()
    if forms == "drawn":
        out |= forms_left_out(tests, seed)
    elif forms != "all":
        out |= {test.id for test in tests if test.form not in (forms, None)}
    if config.getoption("--cases") == "drawn":
        out |= cases_left_out(tests, seed, named=any("::" in each for each in config.args))
    return out

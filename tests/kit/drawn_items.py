"""Leave out what a run's seed does not draw: forms of a store, and cases of a sweep.

LO1  A test that runs over several forms of a store runs embedded, if that is one of them, and in
     one more form. So it has run in each over as many consecutive turns as there are others (DR1).
LO2  Of a test with the mark `cases(n)` about one case in n runs, and over n turns each.
LO3  Of the tests of a file that have the mark `cases(n, of_file=True)` about one in n runs, and
     over n turns each. It is for long tests of which several go through the same code: power
     failures at every call, micro-batches of Spark.

A test with the mark `every_form`, or one that is named with its parameters, is never left out; nor
does LO3 leave one out that is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import pytest

from tests.kit.draws import drawn, share

EMBEDDED = "embedded"
FORMS = (EMBEDDED, "joined", "elected", "asyncio", "asyncio joined")
# Fixtures whose parameter is a form. A `pair` has a store in this form beside an embedded one.
ARGUMENTS = ("store", "pair", "plain_store")


class Drawable(NamedTuple):
    """What a draw knows of a test."""

    id: str
    form: str | None = None
    parts: int | None = None  # of its mark `cases`
    of_file: bool = False  # the tests of its file are the cases

    @property
    def file(self) -> str:
        """The file that it stands in."""
        return self.id.partition("::")[0]

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


def drawable(item: pytest.Item) -> Drawable:
    """Return what a draw knows of a test."""
    if item.get_closest_marker("every_form"):
        return Drawable(item.nodeid)  # and in each turn
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    forms = (parameters[name] for name in ARGUMENTS if parameters.get(name) in FORMS)
    cases = item.get_closest_marker("cases")
    if cases is None:
        return Drawable(item.nodeid, next(forms, None))
    return Drawable(item.nodeid, next(forms, None), *cases.args, **cases.kwargs)


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


def cases_left_out(tests: Iterable[Drawable], seed: int) -> set[str]:
    """Return the ids of the tests that LO2 and LO3 leave out."""
    cases: dict[tuple[str, int], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for test in tests:
        if test.parts:
            among, case = (test.file, test.function) if test.of_file else (test.function, test.case)
            cases[among, test.parts][case].append(test.id)
    out: set[str] = set()
    for (among, parts), ids in cases.items():
        for case in ids.keys() - share(list(ids), parts, seed, among):
            out.update(ids[case])
    return out


def left_out(config: pytest.Config, items: Iterable[pytest.Item], seed: int) -> set[str]:
    """Return the ids of the tests that this run leaves out."""
    if any("[" in each for each in config.args):
        return set()
    tests = [drawable(item) for item in items]
    if any("::" in each for each in config.args):
        tests = [test._replace(parts=None) if test.of_file else test for test in tests]
    forms = config.getoption("--forms")
    out: set[str] = set()
    if forms == "drawn":
        out |= forms_left_out(tests, seed)
    elif forms != "all":
        out |= {test.id for test in tests if test.form not in (forms, None)}
    if config.getoption("--cases") == "drawn":
        out |= cases_left_out(tests, seed)
    return out

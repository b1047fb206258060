"""The table of durations says why a test of `make test` takes long."""

from __future__ import annotations

import ast
from functools import cache

from scripts.write_durations import (
    FROM_SECONDS,
    REASON_SECONDS,
    TABLE,
    DurationLine,
    longest,
    read_table,
    table,
)
from tests.source_tree import ROOT


@cache
def functions(file: str) -> set[str]:
    """Return the names of the tests of a file, those of classes with their class."""
    found = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        match node:
            case ast.ClassDef(name=name, body=body):
                found |= {f"{name}::{each.name}" for each in body
                          if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}  # fmt: skip
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):  # of Hypothesis' state machines
                found.add(f"{name}::runTest")
    return found


def test_what_takes_more_than_five_seconds_says_why() -> None:
    """Each line of the table is of a test that there is, once, the longest first."""
    lines = read_table(TABLE.read_text())
    assert [line.test for line in lines if line.seconds > REASON_SECONDS and not line.reason] == []
    assert min(line.seconds for line in lines) >= FROM_SECONDS
    assert [line.seconds for line in lines] == sorted((li.seconds for li in lines), reverse=True)
    tests = [line.test for line in lines]
    assert len(tests) == len(set(tests))
    gone = [test for test in tests for file, _, name in [test.partition("::")]
            if not (ROOT / file).exists() or name not in functions(file)]  # fmt: skip
    assert gone == [], "run `make durations` after `make test`"


def test_a_table_is_made_of_what_was_measured() -> None:
    """The longest case of a test counts; reasons stay, short tests have no line."""
    measured = longest("0.90\ta.py::test_b[1]\n7.25\ta.py::test_b[2]\n0.99\ta.py::test_c\n")
    before = [
        DurationLine("a.py::test_b", 6.0, "it compiles"),
        DurationLine("a.py::test_c", 8.0, "gone"),
    ]
    assert measured == {"a.py::test_b": 7.25, "a.py::test_c": 0.99}
    assert table(measured, before) == "7.2\ta.py::test_b\tit compiles\n"
    assert read_table(table(measured, [])) == [DurationLine("a.py::test_b", 7.2)]

"""The checker of the documents finds what it is there to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import check_docs, check_java


def table(**cells: str) -> str:
    """A conformance document; `p3="..."` sets the right column of promise 3."""
    rows = [f"| {n} | **P{n}.** | {cells.get(f'p{n}', '`t::x`')} |" for n in check_docs.PROMISES]
    return "\n".join(["| # | Promise | Tests |", "|---|---|---|", *rows, ""])


def all_tested() -> dict[int, list[str]]:
    """Every promise with one test, as `table()` lists them."""
    return {number: ["t::x"] for number in check_docs.PROMISES}


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("[a](missing.md)", "no such file"),
        ("[a](other.md#nowhere)", "no such heading"),
        ("[a](#nowhere)", "no such heading"),
        ("[a](../outside.md)", "leaves the repository"),
        ("[a]\n\n[a]: missing.md", "no such file"),
    ],
)
def test_a_broken_link_is_found(tmp_path: Path, link: str, message: str) -> None:
    """Missing files and headings, inline and by reference, and links out of the repository."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside.md").write_text("")
    (root / "other.md").write_text("# There\n")
    (root / "a.md").write_text(link)
    (error,) = check_docs.link_errors(root / "a.md", root)
    assert message in error


def test_good_links_and_links_in_code_pass(tmp_path: Path) -> None:
    """Web addresses, headings with punctuation, and examples in code are no errors."""
    text = "# One, `two`!\n[a](#one-two) [b](a.md) [c](https://example.org/x)\n"
    (tmp_path / "a.md").write_text(text + "`[d](no.md)`\n```\n[e](no.md)\n```\n")
    assert check_docs.link_errors(tmp_path / "a.md", tmp_path) == []


def test_a_module_that_is_not_there_is_found(tmp_path: Path) -> None:
    """Also a folder, and one that a test is named in; a decision tells of its own time."""
    (tmp_path / "docs" / "decisions").mkdir(parents=True)
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "here.py").touch()
    text = "`journal/here.py`, `journal/gone.py`, `tests/test_gone.py::test_a`; `gone.py`\n"
    text += "`journal/gone/`, `docs/decisions/`, `elsewhere/run/`\n"
    for name in ("docs/a.md", "docs/decisions/b.md"):
        (tmp_path / name).write_text(text)
    errors = check_docs.file_errors(tmp_path / "docs" / "a.md", tmp_path)
    assert errors == [
        "docs/a.md: no file journal/gone.py",
        "docs/a.md: no file tests/test_gone.py",
        "docs/a.md: no folder journal/gone/",
    ]
    assert check_docs.file_errors(tmp_path / "docs" / "decisions" / "b.md", tmp_path) == []


def test_a_name_that_its_module_does_not_have_is_found(tmp_path: Path) -> None:
    """A link whose text is a class, a function or a method."""
    (tmp_path / "here.py").write_text("class A:\n    def b(self): ...\ndef c(): ...\n")
    good = "[`A`](here.py) [`A.b`](here.py) [`c`](here.py) [anything](here.py)\n"
    links = good + "[`A.c`](here.py) [`b`](here.py)\n"
    (tmp_path / "a.md").write_text(links)
    errors = check_docs.name_errors(tmp_path / "a.md", tmp_path)
    assert errors == ["a.md: here.py has no A.c", "a.md: here.py has no b"]


def test_a_command_without_a_target_is_found(tmp_path: Path) -> None:
    """`make` in prose is a verb; in code it is a command."""
    (tmp_path / "README.md").write_text(
        "We make coffee.\n```\nmake test\nmake tea\n```\n`make bed`\n"
    )
    errors = check_docs.command_errors(tmp_path / "README.md", {"test"})
    assert errors == ["README.md: no target for `make bed`", "README.md: no target for `make tea`"]


def test_marks_are_found_wherever_pytest_takes_them(tmp_path: Path) -> None:
    """Marks on functions, on classes, on modules, and for Hypothesis' state machines."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(
        "pytestmark = [pytest.mark.long, pytest.mark.promise(1)]\n"
        "@pytest.mark.promise(2, 3)\n"
        "def test_f(): ...\n"
        "@pytest.mark.promise(4)\n"
        "class TestC:\n"
        "    def test_g(self): ...\n"
        "TestModel = Model.TestCase\n"
        "def helper(): ...\n"
    )
    f, g, model = (f"tests/test_a.py::{name}" for name in ("test_f", "TestC::test_g", "TestModel"))
    assert check_docs.tests_by_promise(tmp_path) == {1: [f, g, model], 2: [f], 3: [f], 4: [g]}


def test_a_computed_mark_is_refused(tmp_path: Path) -> None:
    """The checker does not run the tests' code, so it says that it cannot read `*range(...)`."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("pytestmark = pytest.mark.promise(*range(3))\n")
    with pytest.raises(ValueError, match="write the numbers out"):
        check_docs.tests_by_promise(tmp_path)


def test_a_complete_table_passes() -> None:
    """Tests under every promise, and a plan where there is none yet."""
    assert check_docs.conformance_errors(table(), all_tested()) == []
    tests = all_tested()
    del tests[7]
    assert check_docs.conformance_errors(table(p7="planned: later"), tests) == []


def test_a_promise_without_a_test_is_found() -> None:
    """No promise without a test, even where the table claims one."""
    tests = all_tested()
    del tests[3]
    errors = check_docs.conformance_errors(table(), tests)
    assert any("promise 3 has no test" in error for error in errors)


@pytest.mark.parametrize("cell", ["`t::gone`", "none yet", "planned: later"])
def test_a_table_that_is_out_of_date_is_found(cell: str) -> None:
    """A test that is gone or not listed, or a plan that has been carried out."""
    (error,) = check_docs.conformance_errors(table(p5=cell), all_tested())
    assert "run `make docs`" in error
    assert check_docs.written(table(p5=cell), all_tested()) == table()


def test_a_missing_row_is_found() -> None:
    """Deleting a promise from the table does not get rid of it."""
    text = "\n".join(line for line in table().splitlines() if not line.startswith("| 13 |"))
    (error,) = check_docs.conformance_errors(text, all_tested())
    assert "promise 13 has no row" in error


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The [thirteen promises](conformance.md), each", ["thirteen"]),
        ("all 15 promises", ["15"]),
        ("One of thirteen numbered guarantees", ["thirteen"]),
        ("The fourteen promises, and the promises", []),
        ("of its promises; two promises of these", []),
    ],
)
def test_a_wrong_count_of_promises_is_found(tmp_path: Path, text: str, found: list[str]) -> None:
    """In words or digits; where some of them are meant, the count says nothing."""
    (tmp_path / "a.md").write_text(text)
    errors = check_docs.count_errors(tmp_path / "a.md", tmp_path)
    assert errors == [f"a.md: {count} promises, there are 14" for count in found]


def test_a_numbered_row_that_is_there_twice_is_found(tmp_path: Path) -> None:
    """By its number in a table of its own; figures in a first column are no numbers of rows."""
    rows = "| # | what |\n|---|---|\n| 1 | a |\n| 2 | b |\n| 1 | c |\n"
    questions = "| question | answer |\n|---|---|\n| 1. who? | a |\n| 1. what? | b |\n"
    figures = "| threads | us |\n|---|---|\n| 1 | 5 |\n| 1 | 6 |\n"
    (tmp_path / "a.md").write_text(f"{rows}\n{questions}\n{figures}\n{rows[:-10]}")
    errors = check_docs.row_errors(tmp_path / "a.md", tmp_path)
    assert errors == ["a.md: row 1 is there twice"] * 2


def test_a_row_of_a_table_that_is_broken_into_lines_is_found(tmp_path: Path) -> None:
    """The rest of it would be a row by itself, with its text in the first column."""
    (tmp_path / "a.md").write_text("| a | b |\n|---|---|\n| 1 | more\nof it |\n\n```\n| x\n```\n")
    errors = check_docs.table_errors(tmp_path / "a.md", tmp_path)
    assert errors == ["a.md: a row is broken into lines: | 1 | more"]


def test_a_decision_that_is_replaced_says_by_what(tmp_path: Path) -> None:
    """And is told of by decisions alone; its number is that of its name."""
    folder = tmp_path / "docs" / "decisions"
    folder.mkdir(parents=True)
    (folder / "0001-one.md").write_text("# 1. One\n\nStatus: replaced by [2](0002-two.md)\n")
    (folder / "0002-two.md").write_text("# 2. Two, in the place of [1](0001-one.md)\n")
    assert check_docs.decision_errors(tmp_path) == []
    (folder / "0003-three.md").write_text("# 4. Three\n\nStatus: replaced\n")
    (tmp_path / "docs" / "a.md").write_text("as [decided](decisions/0001-one.md#question)\n")
    assert check_docs.decision_errors(tmp_path) == [
        "docs/decisions/0003-three.md: its heading begins with its number, which no other has",
        "docs/decisions/0003-three.md: is replaced, and does not link what replaces it",
        "docs/a.md: links 0001-one.md, a decision that is replaced",
    ]


@pytest.mark.parametrize(
    ("answer", "good"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('openjdk version "21" 2023-09-19', True),
        ('openjdk version "25-ea" 2025-09-16', True),
        ('java version "1.8.0_392"', False),
        ('openjdk version "11.0.2" 2019-01-15', False),
        ("no JVM here", False),
    ],
)
def test_old_java_is_told_from_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, good: bool
) -> None:
    """The check reads the version as each generation of Java prints it."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert (check_java.problem() is None) == good


def test_missing_java_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Java the exit status is 1, and the message holds the command that installs it."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert check_java.main() == 1
    assert "apt-get install openjdk-17-jre-headless" in capsys.readouterr().err

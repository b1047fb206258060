"""Check the documents against the repository; with --write, bring their generated parts up to date.

Checked:

* every relative link in a Markdown file leads to a file, and its #anchor to a heading;
* a link with `Class.method`, or with a name alone, as its text leads to the module that has it;
* every `folder/module.py` and `folder/folder/` that a document names is there (decisions and the
  changelog tell of what was);
* every `make X` in README.md and CONTRIBUTING.md is a target of the Makefile;
* docs/conformance.md lists promises 1 to 14, and under each exactly the tests that carry its mark;
* who writes how many promises there are ("the fourteen promises") is right;
* a numbered row stands once in its table;
* a decision has a number of its own, the same in its name and its heading; where it says that it is
  replaced, it links the page that replaces it, and no page that tells of today links it.

The marks `@pytest.mark.promise(n)` (on a function, on a class, or as `pytestmark` of a module) are
the source; the right column of the table is generated from them. A promise without a test is an
error, unless its row says "planned" and what is missing.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFORMANCE = ROOT / "docs" / "conformance.md"
PROMISES = range(1, 15)
PLANNED = "planned"
PAST = ("docs/decisions/", "CHANGELOG.md", "bench/results/")
SKIPPED_FOLDERS = frozenset({"build", "dist", "node_modules", "__pycache__"})

FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`[^`\n]+`")
LINK = re.compile(
    r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE
)
MODULE = re.compile(r"`((?:[\w-]+/)+\w+\.py)\b[^`\n]*`")
ROOM = re.compile(r"`((?:[a-z_]+/){2,})`")  # `engine/pages/`, where `engine` is a folder of code
NAMED = re.compile(r"\[`([A-Za-z_][\w.]*)`\]\(([^)\s#]+\.py)\)")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
COUNT = re.compile(
    r"\b(?:the|all|of) \[?(\w+) (?:numbered )?(?:promises|guarantees)\b", re.IGNORECASE
)
WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
NUMBERED = re.compile(r"^\| (\d+)(?:\. [^|]*)? \|", re.MULTILINE)
DECISION = re.compile(r"^# (\d+)\. ", re.MULTILINE)
REPLACED = re.compile(r"^Status: replaced\b(.*)$", re.MULTILINE | re.IGNORECASE)
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
TARGET = re.compile(r"^([a-z][a-z-]*):(?!=)", re.MULTILINE)
ROW = re.compile(r"^\| (\d+) \|([^|]*)\|([^|]*)\|$", re.MULTILINE)


# Links -------------------------------------------------------------------------------------------


def documents(root: Path) -> Iterator[Path]:
    """Return all Markdown files below the root, outside hidden and built folders and links."""
    for path in sorted(root.iterdir()):
        if path.name.startswith(".") or path.is_symlink() or path.name in SKIPPED_FOLDERS:
            continue
        if path.is_dir():
            yield from documents(path)
        elif path.suffix == ".md":
            yield path


def anchor(heading: str) -> str:
    """The anchor that a heading gets: lower case, no punctuation, hyphens for spaces."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The anchors of all headings; the second of a name gets -1, as renderers do."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        name = base = anchor(heading)
        count = 0
        while name in found:
            count += 1
            name = f"{base}-{count}"
        found.add(name)
    return found


def link_errors(document: Path, root: Path) -> list[str]:
    """Return the mistakes in the relative links of one document."""
    prose = CODE_SPAN.sub("", FENCE.sub("", document.read_text()))
    errors = []
    for match in LINK.finditer(prose):
        target = match[1] or match[2]
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        name, _, fragment = target.partition("#")
        path = document.parent / name if name else document
        where = f"{document.relative_to(root)}: link to {target}"
        if not path.exists():
            errors.append(f"{where}: no such file")
        elif not path.resolve().is_relative_to(root.resolve()):
            errors.append(f"{where}: leaves the repository")
        elif fragment and path.suffix == ".md" and fragment not in anchors(path.read_text()):
            errors.append(f"{where}: no such heading")
    return errors


# Files -------------------------------------------------------------------------------------------


def file_errors(document: Path, root: Path) -> list[str]:
    """Modules, and folders of them, that the document names in code and that are not there."""
    name = document.relative_to(root).as_posix()
    if name.startswith(PAST):
        return []
    text = FENCE.sub("", document.read_text())
    found = {match[1] for match in MODULE.finditer(text)}
    errors = [f"{name}: no file {path}" for path in sorted(found) if not (root / path).is_file()]
    rooms = {match[1] for match in ROOM.finditer(text)}
    missing = (room for room in sorted(rooms) if not (root / room).is_dir())
    errors += [
        f"{name}: no folder {room}" for room in missing if (root / room.split("/")[0]).is_dir()
    ]
    return errors


def names_in(module: Path) -> set[str]:
    """Functions and classes of a module, and `Class.method` of each method."""
    found = set()
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
            found.update(f"{node.name}.{name}" for name in methods)
    return found


def name_errors(document: Path, root: Path) -> list[str]:
    """Links with a name of code as their text, to a module that does not have it."""
    errors = []
    for name, target in NAMED.findall(FENCE.sub("", document.read_text())):
        module = document.parent / target
        if module.is_file() and name not in names_in(module):
            errors.append(f"{document.relative_to(root)}: {target} has no {name}")
    return errors


# Commands ----------------------------------------------------------------------------------------


def command_errors(document: Path, targets: set[str]) -> list[str]:
    """`make X` in code, where X is no target of the Makefile."""
    text = document.read_text()
    code = [match[0] for match in FENCE.finditer(text)]
    code += CODE_SPAN.findall(FENCE.sub("", text))
    named = {name for piece in code for name in MAKE.findall(piece)}
    return [f"{document.name}: no target for `make {name}`" for name in sorted(named - targets)]


# Numbers -----------------------------------------------------------------------------------------


def count_errors(document: Path, root: Path) -> list[str]:
    """Another number of promises than there are, in words or in digits."""
    name = document.relative_to(root).as_posix()
    if name.startswith(PAST):
        return []
    right = {WORDS[len(PROMISES)], str(len(PROMISES))}
    counts = {*WORDS, *map(str, range(100))}
    found = [count.lower() for count in COUNT.findall(document.read_text())]
    wrong = sorted({count for count in found if count in counts} - right)
    return [f"{name}: {count} promises, there are {len(PROMISES)}" for count in wrong]


def row_errors(document: Path, root: Path) -> list[str]:
    """Numbered rows that stand twice in their table: its first column is "#", or has "7. ..."."""
    errors = []
    for table in TABLE.findall(FENCE.sub("", document.read_text())):
        rows = NUMBERED.findall(table)
        if not table.startswith("| # |") and not re.search(r"^\| 1\. ", table, re.MULTILINE):
            continue
        twice = sorted({int(row) for row in rows if rows.count(row) > 1})
        errors += [f"{document.relative_to(root)}: row {row} is there twice" for row in twice]
    return errors


def table_errors(document: Path, root: Path) -> list[str]:
    """Rows of tables that are broken into lines: the rest of one would be a row by itself."""
    lines = FENCE.sub("", document.read_text()).splitlines()
    return [
        f"{document.relative_to(root)}: a row is broken into lines: {line:.60}"
        for line in lines
        if line.startswith("|") and not line.rstrip().endswith("|")
    ]


# Decisions ---------------------------------------------------------------------------------------


def decision_errors(root: Path) -> list[str]:
    """Decisions whose numbers do not agree, and replaced ones that are taken for today's."""
    errors, numbers = [], set()
    replaced = set()
    for page in sorted((root / "docs" / "decisions").glob("*.md")):
        name, text = page.relative_to(root).as_posix(), page.read_text()
        number, heading = int(page.name[:4]), DECISION.match(text)
        if heading is None or int(heading[1]) != number or number in numbers:
            errors.append(f"{name}: its heading begins with its number, which no other has")
        numbers.add(number)
        if status := REPLACED.search(text):
            replaced.add(page)
            if not LINK.search(status[1]):
                errors.append(f"{name}: is replaced, and does not link what replaces it")
    for document in documents(root):
        if document.relative_to(root).as_posix().startswith(PAST):
            continue
        prose = CODE_SPAN.sub("", FENCE.sub("", document.read_text()))
        targets = {(match[1] or match[2]).partition("#")[0] for match in LINK.finditer(prose)}
        for page in sorted(replaced):
            if any((document.parent / target).resolve() == page.resolve() for target in targets):
                where = document.relative_to(root)
                errors.append(f"{where}: links {page.name}, a decision that is replaced")
    return errors


# Promises ----------------------------------------------------------------------------------------


def promises_of(expression: ast.expr) -> set[int]:
    """The numbers of `pytest.mark.promise(n, ...)`, alone or in a list."""
    match expression:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return {number for element in elements for number in promises_of(element)}
        case ast.Call(func=ast.Attribute(attr="promise"), args=args):
            values = [arg.value for arg in args if isinstance(arg, ast.Constant)]
            numbers = {value for value in values if isinstance(value, int)}
            if len(numbers) < len(args):
                line = f"line {expression.lineno}: {ast.unparse(expression)}"
                raise ValueError(f"{line}: write the numbers out, this is read without being run")
            return numbers
    return set()


def inherited(body: list[ast.stmt]) -> set[int]:
    """The promises that `pytestmark = ...` gives to a module or class."""
    found: set[int] = set()
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                found |= promises_of(value)
    return found


def marked_tests(body: list[ast.stmt], prefix: str, outer: set[int]) -> Iterator[tuple[int, str]]:
    """Promise and test id of each test of a module's or a class's body."""
    outer = outer | inherited(body)
    for node in body:
        match node:
            # `TestModel = Model.TestCase`, as Hypothesis has it
            case ast.Assign(targets=[ast.Name(id=alias)]) if alias.startswith("Test"):
                yield from ((number, f"{prefix}::{alias}") for number in outer)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            own = outer.union(*map(promises_of, node.decorator_list))
            name = f"{prefix}::{node.name}"
            if isinstance(node, ast.ClassDef):
                if node.name.startswith("Test"):
                    yield from marked_tests(node.body, name, own)
            elif node.name.startswith("test"):
                yield from ((number, name) for number in own)


def tests_by_promise(root: Path) -> dict[int, list[str]]:
    """Promise -> ids of the tests that carry its mark, in order of file and line."""
    found: dict[int, list[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        for number, test in marked_tests(ast.parse(path.read_text()).body, name, set()):
            found.setdefault(number, []).append(test)
    return found


def cell(tests: list[str], before: str) -> str:
    """The right column of a row; without tests, a plan that stands there stays."""
    plan = before if before.startswith(PLANNED) else "none yet"
    return "<br>".join(f"`{test}`" for test in tests) or plan


def written(text: str, tests: dict[int, list[str]]) -> str:
    """The conformance document with its right column generated anew."""

    def row_with_tests(row: re.Match[str]) -> str:
        return f"| {row[1]} |{row[2]}| {cell(tests.get(int(row[1]), []), row[3].strip())} |"

    return ROW.sub(row_with_tests, text)


def conformance_errors(text: str, tests: dict[int, list[str]]) -> list[str]:
    """Return the mistakes in the conformance document."""
    listed = [int(row[1]) for row in ROW.finditer(text)]
    planned = {int(row[1]) for row in ROW.finditer(text) if row[3].strip().startswith(PLANNED)}
    untested = set(PROMISES) - planned - {number for number in PROMISES if tests.get(number)}
    errors = [f"promise {number} has no row" for number in PROMISES if number not in listed]
    errors += [f"row {n} is no promise" for n in sorted({*listed, *tests} - {*PROMISES})]
    errors += [f"promise {number} has no test" for number in sorted(untested)]
    if text != written(text, tests):
        errors.append("the tests have changed since it was generated: run `make docs`")
    return [f"docs/conformance.md: {error}" for error in errors]


CHECKS = (link_errors, file_errors, name_errors, count_errors, row_errors, table_errors)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check the documents against the repository.")
    parser.add_argument("--write", action="store_true", help="write the generated parts anew")
    options = parser.parse_args(arguments)

    tests = tests_by_promise(ROOT)
    if options.write:
        CONFORMANCE.write_text(written(CONFORMANCE.read_text(), tests))
        return 0
    targets = set(TARGET.findall((ROOT / "Makefile").read_text()))
    errors = [
        error for document in documents(ROOT) for check in CHECKS for error in check(document, ROOT)
    ]
    for name in ("README.md", "CONTRIBUTING.md"):
        errors += command_errors(ROOT / name, targets)
    errors += decision_errors(ROOT)
    errors += conformance_errors(CONFORMANCE.read_text(), tests)
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

"""One tree of loggers, silent until a program says where it goes."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.source_tree import ROOT, all_sources, nodes, parsed

WARN = "import logging, quire; quire.open; logging.getLogger({name!r}).warning('told'); {more}"


def said(name: str, before: str = "", more: str = "") -> str:
    """What a program that imports Quire shows of a warning, on standard error."""
    script = f"import logging; {before}\n" + WARN.format(name=name, more=more)
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout == ""
    return result.stderr


def test_a_library_says_nothing_by_itself() -> None:
    """Until the program sets up logging: then once."""
    assert said("quire.remote") == ""
    assert said("quire.workers", "logging.basicConfig(format='%(name)s %(message)s')") == (
        "quire.workers told\n"
    )


def test_processes_that_nobody_sets_up_show_warnings() -> None:
    """Spark's, and the command line's; once, whoever else shows them."""
    assert said("quire.spark_graphs") == "told\n"
    assert said("quire.spark_graphs", "logging.basicConfig(format='%(message)s')") == "told\n"
    show = "import quire.loggers; quire.loggers.show_warnings('quire')"
    assert said("quire.remote", f"{show}; {show}") == "told\n"
    lines = said("quire.remote", "import quire.cli; quire.cli.main(['queues', '/nowhere'])")
    assert lines.splitlines()[1:] == ["told"]


@pytest.mark.parametrize("path", all_sources(), ids=str)
def test_every_logger_is_of_the_tree(path: object) -> None:
    """Its name begins with the package's."""
    for node in nodes(parsed((ROOT / str(path)).read_text()), ast.Call):
        if ast.unparse(node.func) == "logging.getLogger":
            names = [ast.unparse(argument) for argument in node.args]
            if names and names != ["name"]:
                assert names[0].startswith(("'quire'", "'quire.")), names

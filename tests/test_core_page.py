"""The core page: what it names is there, and it answers what users ask."""

from __future__ import annotations

import re
from typing import get_type_hints

import quire
from tests.source_tree import ROOT

PAGE = (ROOT / "docs" / "core.md").read_text()
CORE, _, REST = PAGE.partition("## By subject")
NAMESPACES, _, QUESTIONS = REST.partition("## Which call does it?")
ROWS = re.compile(r"^\| (.*?) \| (.*) \|$", re.MULTILINE)


def test_the_core_is_of_about_twenty_calls() -> None:
    """Each is a member of a store, and stands in one row."""
    calls = [name for cell, _ in ROWS.findall(CORE) for name in re.findall(r"`(\w+)\(", cell)]
    assert len(calls) == len(set(calls)) <= 24
    assert [name for name in calls if not hasattr(quire.Store, name)] == []


def test_the_questions_are_answered_on_the_page() -> None:
    """By calls that stand in the tables above, or in a transaction's row, or beside the store."""
    answers = ROWS.findall(QUESTIONS)
    assert len([row for row in answers if re.match(r"\d+\.", row[0])]) >= 20
    told = CORE + NAMESPACES
    for question, answer in answers[2:]:
        names = re.findall(r"(?<![\w.])([a-z_]+)\(", answer)
        names += re.findall(r"`store\.\w+\.(\w+)\(", answer)
        missing = [name for name in names if name not in told and name not in ("open", "on", "run")]
        assert missing in ([], ["prepare"]), question


def test_each_name_of_a_namespace_is_there() -> None:
    """The members that the page names of each, and no namespace is left out."""
    found = dict(ROWS.findall(NAMESPACES)[2:])
    for namespace, text in found.items():
        kind = getattr(quire.Store, namespace.strip("`").removeprefix("store."))
        members = dir(inspect_type(kind))
        assert [name for name in re.findall(r"`(\w+)`", text) if name not in members] == []


def inspect_type(member: property) -> type:
    """What a property of the interface gives."""
    assert member.fget is not None
    given: type = get_type_hints(member.fget)["return"]
    return given

"""The glossary has every term, in order, and the documents that newcomers read lead to it."""

from __future__ import annotations

import re

import pytest

from tests.source_tree import ROOT, all_sources

TEXT = (ROOT / "docs" / "glossary.md").read_text()
TERMS = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
FIRST_READ = ("README.md", "ARCHITECTURE.md", "docs/tour.md")
# The words that the design fixes for code, documents and messages.
VOCABULARY = (
    "store", "queue manager", "queue", "topic", "record", "message", "block", "subscription",
    "read structure", "transaction", "compound transaction", "journal", "write buffer", "LTDS",
    "reservation counters", "session",
)  # fmt: skip
CODE = re.compile(r"^```.*?^```|`[^`\n]+`|\([^()\s]+\)", re.MULTILINE | re.DOTALL)
# In capitals, and known to everybody.
PLAIN = {
    "API",
    "TLS",
    "PEP",
    "JSON",
    "ARCHITECTURE",
    "README",
    "CONTRIBUTING",
    "CHANGELOG",
    "LICENSE",
    "JP",
}


def test_the_vocabulary_is_there_in_order() -> None:
    """Every word of the design, and each once, by the alphabet."""
    assert set(VOCABULARY) <= set(TERMS)
    letters = [re.sub(r"[^a-z ]", "", term.lower()) for term in TERMS]
    assert letters == sorted(set(letters))


@pytest.mark.parametrize("name", FIRST_READ)
def test_capitals_are_explained(name: str) -> None:
    """COMMIT, LSN, LTDS and the like, wherever they stand in prose."""
    words = set(re.findall(r"\b[A-Z]{3,}\b", CODE.sub("", (ROOT / name).read_text())))
    explained = {word for term in TERMS for word in term.split()}
    told = set(re.findall(r"\b[A-Z]{3,}\b", TEXT))
    assert words - PLAIN <= explained | told


@pytest.mark.parametrize("name", FIRST_READ[1:])
def test_house_terms_lead_to_the_glossary(name: str) -> None:
    """A document that uses a term of two words or in capitals links it once."""
    text = (ROOT / name).read_text()
    prose = CODE.sub("", text)
    linked = set(re.findall(r"glossary\.md#([\w-]+)", text))
    for term in TERMS:
        if " " in term or term.isupper() or "/" in term:
            anchor = re.sub(r"[^\w -]", "", term.lower()).replace(" ", "-")
            if re.search(rf"(?<![\w-]){re.escape(term)}s?(?![\w-])", prose):
                assert anchor in linked, f"{name} uses {term!r} and does not link it"


def test_no_term_is_dead() -> None:
    """Each is used somewhere else than in the glossary."""
    texts = [path.read_text() for path in (ROOT / "docs").glob("*.md") if path.stem != "glossary"]
    texts += [(ROOT / path).read_text() for path in all_sources()]
    everything = "\n".join([*texts, *((ROOT / name).read_text() for name in FIRST_READ[:2])])
    plain = re.sub(r"\s+", " ", everything).lower()
    assert [term for term in TERMS if term.lower() not in plain] == []

"""What selectors mean: the grammar and the examples of Jakarta Messaging 3.1, section 3.8.1.

Where a row is one of its published examples, the text is as it stands there.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.selectors.condition import condition
from quire.selectors.like_pattern import LikePattern

from .asked import block_of, truth

T, F, U = True, False, None

EXAMPLES: list[tuple[str, bool | None, dict[str, str]]] = [
    # The first one, with the type of a message as the type of its content.
    (
        "JMSType = 'car' AND color = 'blue' AND weight > 2500",
        T,
        {"color": "blue", "weight": "2501"},
    ),
    (
        "JMSType = 'car' AND color = 'blue' AND weight > 2500",
        F,
        {"color": "blue", "weight": "2500"},
    ),
    ("JMSType = 'car' AND color = 'blue' AND weight > 2500", F, {"color": "red", "weight": "no"}),
    ("JMSType = 'car' AND color = 'blue' AND weight > 2500", U, {"color": "blue"}),
    ("age BETWEEN 15 AND 19", T, {"age": "15"}),
    ("age BETWEEN 15 AND 19", T, {"age": "19"}),
    ("age BETWEEN 15 AND 19", F, {"age": "20"}),
    ("age BETWEEN 15 AND 19", U, {}),
    ("age >= 15 AND age <= 19", T, {"age": "17"}),
    ("age NOT BETWEEN 15 AND 19", F, {"age": "17"}),
    ("age NOT BETWEEN 15 AND 19", T, {"age": "14"}),
    ("age NOT BETWEEN 15 AND 19", U, {}),
    ("age < 15 OR age > 19", T, {"age": "14"}),
    ("Country IN (' UK', 'US', 'France')", T, {"Country": " UK"}),
    ("Country IN (' UK', 'US', 'France')", F, {"Country": "Peru"}),
    ("Country IN (' UK', 'US', 'France')", U, {}),
    ("(Country = ' UK') OR (Country = 'US') OR (Country = 'France')", F, {"Country": "Peru"}),
    ("Country NOT IN (' UK', 'US', 'France')", F, {"Country": "US"}),
    ("Country NOT IN (' UK', 'US', 'France')", T, {"Country": "Peru"}),
    ("Country NOT IN (' UK', 'US', 'France')", U, {}),
    ("NOT ((Country = ' UK') OR (Country = 'US') OR (Country = 'France'))", T, {"Country": "P"}),
    ("phone LIKE '12%3'", T, {"phone": "123"}),
    ("phone LIKE '12%3'", T, {"phone": "12993"}),
    ("phone LIKE '12%3'", F, {"phone": "1234"}),
    ("word LIKE 'l_se'", T, {"word": "lose"}),
    ("word LIKE 'l_se'", F, {"word": "loose"}),
    (r"underscored LIKE '\_%' ESCAPE '\'", T, {"underscored": "_foo"}),
    (r"underscored LIKE '\_%' ESCAPE '\'", F, {"underscored": "bar"}),
    ("phone NOT LIKE '12%3'", F, {"phone": "123"}),
    ("phone NOT LIKE '12%3'", F, {"phone": "12993"}),
    ("phone NOT LIKE '12%3'", T, {"phone": "1234"}),
    ("phone NOT LIKE '12%3'", U, {}),
    ("prop_name IS NULL", T, {}),
    ("prop_name IS NULL", F, {"prop_name": ""}),
    ("prop_name IS NOT NULL", T, {"prop_name": ""}),
    ("prop_name IS NOT NULL", F, {}),
]


@pytest.mark.parametrize(("text", "expected", "attributes"), EXAMPLES)
def test_the_published_examples(
    text: str, expected: bool | None, attributes: dict[str, str]
) -> None:
    """True, false or unknown, as the specification tells."""
    assert truth(text, content_type="car", attributes=attributes) is expected


A = {"n": "42", "f": "2.5", "t": "north", "b": "True", "neg": "-7", "quote": "a'b", "odd-name": "x"}
GRAMMAR: list[tuple[str, bool | None]] = [
    # Literals: texts, exact and approximate numbers in Java's ways, truth values.
    ("quote = 'a''b'", T),
    ("n = 42", T), ("n = +42", T), ("neg = -7", T), ("n = 42L", T), ("n = 4_2", T),
    ("n = 0x2A", T), ("n = 0X2a", T), ("n = 052", T), ("n = 0b101010", T), ("n = 052L", T),
    ("n = 0x1.5p5", T), ("n = 0X54p-1d", T), ("n = 0x.54p+7", T), ("n = -0x1p3", F),
    ("n = 42.", T), ("n = 42.0", T), ("n = 4.2E1", T), ("n = 420e-1", T), ("n = 42d", T),
    ("f = 2.5", T), ("f = .25e+1F", T), ("f = 25E-1", T), ("0 = 00", T),
    ("-9223372036854775808 < 9223372036854775807", T),
    ("TRUE", T), ("false", F), ("TRUE AND FALSE", F), ("TRUE = TRUE", T), ("TRUE <> FALSE", T),
    ("", T), (" \t\n\f\r", T),
    # Words in capital or small letters; names with both are two.
    ("n bEtWeEn 1 aNd 50 Or NoT n iS nUlL", T), ("N IS NULL", T), ("n\n=\t42", T),
    # Names that begin with a word, or with _ and $, as Java has them.
    ("android IS NULL AND nothing IS NULL AND $in IS NULL AND _1 IS NULL AND in$ IS NULL", T),
    ("größe IS NULL", T), ('"odd-name" = \'x\'', T), ('"n" = 42', T), ('"a""b" IS NULL', T),
    ('"JMSPriority" IS NULL', T), ("date IS NULL AND timestamp IS NULL", T),
    # NOT before AND before OR.
    ("TRUE OR FALSE AND FALSE", T), ("(TRUE OR FALSE) AND FALSE", F),
    ("NOT FALSE AND FALSE", F), ("NOT (FALSE AND FALSE)", T), ("NOT NOT TRUE", T),
    ("NOT n = 1 AND n = 42", T),
    # Arithmetic: signs, then * and /, then + and -, from the left.
    ("n = 2 + 4 * 10", T), ("n = (2 + 4) * 7", T), ("n = 84 / 2", T), ("n - 40 - 1 = 1", T),
    ("n / 2 / 3 = 7", T), ("- n = -42", T), ("-(n) + 1 = -41", T), ("n--1 = 43", T),
    ("n / 5 = 8", T), ("neg / 2 = -3", T), ("n / 5.0 = 8.4", T), ("f * 2 = 5", T),
    ("n = f * 16.8", T),
    # Exact with exact stays exact; without a value it is unknown.
    ("9007199254740993 - 1 = 9007199254740992", T), ("9007199254740993 = 9007199254740992", F),
    ("n / 0 = 1", U), ("n / (n - 42) > 0", U), ("9223372036854775807 + 1 > 0", U),
    ("-9223372036854775807 - 2 < 0", U), ("4611686018427387904 * n > 0", U),
    ("n / 0.0 > 1e308", T),
    # Comparisons.
    ("n > 41 AND n >= 42 AND n < 43 AND n <= 42 AND n <> 41", T), ("42 < n", F),
    ("t = 'north' AND t <> 'south' AND 'north' = t", T), ("t <> 'north'", F),
    ("n = '42'", T), ("n = '42.0'", F), ("n > f AND neg < f", T), ("n = f", F), ("n = n", T),
    ("b", T), ("b = TRUE", T), ("b <> TRUE", F), ("NOT b", F), ("b = FALSE OR n = 42", T),
    # What is no number, or no truth value, is unknown, as what is not there.
    ("t > 1", U), ("t = 1", U), ("NOT t = 1", U), ("t + 1 = 1", U), ("none = 1", U), ("none", U),
    ("t", U), ("t = TRUE", U), ("none <> 'x'", U), ("none = none", U), ("-none < 1", U),
    ("none BETWEEN 1 AND 2", U), ("n BETWEEN none AND 50", U), ("n BETWEEN none AND 1", F),
    ("n NOT BETWEEN none AND 1", T), ("n BETWEEN 50 AND 1", F), ("n NOT BETWEEN 50 AND 1", T),
    # IN and LIKE.
    ("n IN ('42')", T), ("n IN (42)", T), ("n IN (1, 2.0, -3)", F), ("t IN ('a', 1)", U),
    ("t LIKE '%'", T), ("t LIKE 'n%h'", T), ("t LIKE '_____'", T), ("t LIKE '____'", F),
    ("t LIKE '%or%'", T), ("t LIKE 'nor'", F), ("t LIKE 'north'", T), ("t LIKE '%rth'", T),
    ("t LIKE ''", F), ("none LIKE '%'", U), ("t LIKE '%!%%' ESCAPE '!'", F),
    # The tables of three values.
    ("none AND FALSE", F), ("none AND TRUE", U), ("none AND none", U), ("FALSE AND none", F),
    ("none OR TRUE", T), ("none OR FALSE", U), ("none OR none", U), ("TRUE OR none", T),
    ("NOT none", U),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), GRAMMAR)
def test_the_grammar(text: str, expected: bool | None) -> None:
    """True, false or unknown."""
    if not text.strip():
        assert condition(text).rows(block_of([(b"", {})]), first_id=1, time_us=1).tolist() == [True]
    else:
        assert truth(text, attributes=A) is expected


HEADER: list[tuple[str, bool | None]] = [
    ("JMSPriority = 9", T), ("JMSPriority BETWEEN 1 AND 4", F), ("JMS_Quire_Group = 3", T),
    ("JMSTimestamp = 1700000000123", T), ("JMSTimestamp / 1000 < 1700000000", F),
    ("JMSMessageID >= 1000 AND JMSMessageID < 1012", T),
    ("JMSCorrelationID = 'c1' AND JMSReplyTo = 'r' AND JMSType = 'text/plain'", T),
    ("JMSXUserID LIKE 'bo_'", T), ("JMSXUserID IN ('eve', 'bob')", T), ("JMSXGroupID = 'k'", T),
    ("JMSExpiration = 1800000000000", T), ("JMSDeliveryTime IS NULL", T),
    ("JMSDeliveryTime > 0", U),
    ("JMSDeliveryMode = 'PERSISTENT'", T), ("JMSDeliveryMode LIKE 'NON%'", F),
    ("JMSDeliveryMode IN ('x')", F), ("JMSDeliveryMode IS NOT NULL", T),
    ("payload = 'héllo 5'", T), ("payload LIKE 'h_llo%'", T), ("payload > 1", U),
    ("payload IS NULL", F), ("JMSPriority + n = 51", T), ("JMSPriority * f = 22.5", T),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), HEADER)
def test_the_header_and_the_payload(text: str, expected: bool | None) -> None:
    """By the names that Jakarta Messaging has for them."""
    fields: dict[str, Any] = {
        "priority": 9, "group": 3, "sender": "bob", "correlation_id": "c1", "reply_to": "r",
        "content_type": "text/plain", "expires_at": 1_800_000_000_000_999, "group_key": "k",
        "attributes": A,
    }  # fmt: skip
    assert truth(text, "héllo 5".encode(), **fields) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("JMSPriority = 0", T), ("JMS_Quire_Group = 0", T), ("JMSCorrelationID IS NULL", T),
        ("JMSType = 'x'", U), ("JMSExpiration > 0", U), ("JMSXUserID LIKE '%'", U), ("a = 1", U),
        ("JMSXGroupID IS NULL", T), ("payload IS NULL", T), ("payload LIKE '%'", U),
    ],
)  # fmt: skip
def test_what_a_put_did_not_say(text: str, expected: bool | None) -> None:
    """Numbers have their defaults, texts are null; a payload that is not UTF-8 is no text."""
    assert truth(text, b"\xff\xfe") is expected


def test_a_volatile_queue_is_not_persistent() -> None:
    """A volatile queue is not persistent as Jakarta Messaging has it."""
    block = block_of([(b"", {})])
    for is_volatile, mode in ((False, "PERSISTENT"), (True, "NON_PERSISTENT")):
        asked = condition(f"JMSDeliveryMode = '{mode}'", is_volatile=is_volatile)
        assert asked.rows(block, first_id=1, time_us=1).tolist() == [True]


letters = st.text("ab_%", max_size=8)


def is_like(text: str, pattern: str) -> bool:
    """Written from the definition."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(is_like(text[at:], pattern[1:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and is_like(text[1:], pattern[1:])


@given(letters, letters)
def test_like_is_as_defined(text: str, pattern: str) -> None:
    """Against a plain recursion; and every text is like its own, escaped."""
    assert LikePattern(pattern).is_like(text) is is_like(text, pattern)
    escaped = "".join(f"!{each}" if each in "_%" else each for each in text)
    made = LikePattern(escaped, "!")
    assert made.is_like(text)
    assert made.plain == "equal"


def test_no_pattern_takes_long() -> None:
    """One that a search with ways back would take hours for."""
    assert not LikePattern("%a" * 40 + "%b").is_like("a" * 5000)

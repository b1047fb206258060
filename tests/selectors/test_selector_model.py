"""Any condition over columns is what a plain evaluator says of each message: it is written here."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from .asked import FIRST_ID, TIME_US, Given, block_of, chosen

# A tree is a tuple: what it is, and its parts.
Tree = tuple[Any, ...]

NAMES = ("a", "b", "c")
NUMBER_FIELDS = {"JMSPriority": "priority", "JMS_Quire_Group": "group"}
TEXT_FIELDS = {"JMSXUserID": "sender", "JMSCorrelationID": "correlation_id"}
TIME_FIELDS = {"JMSExpiration": "expires_at", "JMSTimestamp": "", "JMSMessageID": ""}
WORDS = [
    "", "x", "a_b", "a%b", "ab", "é", "1", "+5", "-2", "2.5", ".5", "5.", "1e3", "1E400", "0x1",
    "1_0", "nan", "inf", "٣", " 1", "true", "FALSE", "1.0",
    "9223372036854775807", "9223372036854775808",
]  # fmt: skip

words = st.sampled_from(WORDS)
literals = st.one_of(
    st.tuples(
        st.just("number"), st.sampled_from([0, 1, 2, -2, 5, 1000, (1 << 63) - 1, -(1 << 63)])
    ),
    st.tuples(st.just("number"), st.sampled_from([0.0, 0.5, 2.5, 1e3, -5.0, 2.0**63])),
)
attributes = st.tuples(st.just("attribute"), st.sampled_from([*NAMES, "payload"]))
number_fields = st.tuples(st.just("field"), st.sampled_from([*NUMBER_FIELDS, *TIME_FIELDS]))
text_fields = st.tuples(st.just("field"), st.sampled_from([*TEXT_FIELDS]))
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
equal_signs = st.sampled_from(["=", "<>"])
sure_numbers = st.one_of(literals, number_fields)
numbers = st.recursive(
    st.one_of(sure_numbers, attributes),
    lambda inner: st.one_of(
        st.tuples(st.just("arithmetic"), st.sampled_from("+-*/"), inner, inner),
        st.tuples(st.just("minus"), inner),
    ),
    max_leaves=5,
)
texts = st.one_of(attributes, text_fields)
patterns = st.text("ab_%1.é", max_size=4)
tests = st.one_of(
    st.tuples(st.just("numbers"), signs, numbers, sure_numbers),
    st.tuples(st.just("numbers"), signs, sure_numbers, numbers),
    st.tuples(st.just("numbers"), st.sampled_from(["<", "<=", ">", ">="]), attributes, attributes),
    st.tuples(st.just("texts"), equal_signs, texts, st.tuples(st.just("text"), words)),
    st.tuples(st.just("texts"), equal_signs, texts, texts),
    st.tuples(st.just("booleans"), equal_signs, attributes, st.booleans()),
    st.tuples(st.just("is"), attributes),
    st.tuples(st.just("between"), numbers, sure_numbers, sure_numbers, st.booleans()),
    st.tuples(st.just("in"), texts, st.lists(words, min_size=1, max_size=3), st.booleans()),
    st.tuples(st.just("like"), texts, patterns, st.booleans()),
    st.tuples(st.just("null"), st.one_of(attributes, number_fields, text_fields), st.booleans()),
    st.tuples(st.just("constant"), st.booleans()),
)
conditions: st.SearchStrategy[Tree] = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=6,
)
optional = st.none() | words
messages = st.tuples(
    st.one_of(words.map(str.encode), st.just(b"\xff"), st.just(b"")),
    st.fixed_dictionaries(
        {"attributes": st.dictionaries(st.sampled_from(NAMES), words)},
        optional={
            "priority": st.sampled_from([0, 1, 5, 65535]),
            "group": st.sampled_from([0, 2]),
            "sender": words,
            "correlation_id": words,
            "expires_at": st.sampled_from([1_000_000, 2_500_999, 5_000]),
        },
    ),
)


def written(tree: Tree) -> str:
    """The tree as a selector."""
    kind, *parts = tree
    return WRITTEN[kind](*parts)


def quoted(text: str) -> str:
    """As a literal."""
    return "'" + text.replace("'", "''") + "'"


def no(is_not: bool) -> str:
    """The word before others that makes them their opposite."""
    return "NOT " if is_not else ""


def joined(word: str) -> Callable[[list[Tree]], str]:
    """Conditions with a word between them."""
    return lambda parts: f" {word} ".join(f"({written(part)})" for part in parts)


WRITTEN: dict[str, Callable[..., str]] = {
    "number": repr,
    "text": quoted,
    "attribute": str,
    "field": str,
    "minus": lambda part: f"-({written(part)})",
    "arithmetic": lambda sign, left, right: f"({written(left)} {sign} {written(right)})",
    "numbers": lambda sign, left, right: f"{written(left)} {sign} {written(right)}",
    "texts": lambda sign, left, right: f"{written(left)} {sign} {written(right)}",
    "booleans": lambda sign, left, right: f"{written(left)} {sign} {right}",
    "is": written,
    "constant": lambda value: str(value).upper(),
    "not": lambda part: f"NOT ({written(part)})",
    "and": joined("and"),
    "or": joined("or"),
    "between": lambda value, low, high, is_not: (
        f"{written(value)} {no(is_not)}BETWEEN {written(low)} AND {written(high)}"
    ),
    "in": lambda value, texts, is_not: (
        f"{written(value)} {no(is_not)}IN ({', '.join(map(quoted, texts))})"
    ),
    "like": lambda value, pattern, is_not: f"{written(value)} {no(is_not)}LIKE {quoted(pattern)}",
    "null": lambda value, is_not: f"{written(value)} IS {no(is_not)}NULL",
}


class Model:
    """What a condition is of one message, said the slow way."""

    def __init__(self, payload: bytes, fields: Mapping[str, Any], message_id: int) -> None:
        self.payload, self.fields, self.id = payload, fields, message_id

    def text(self, tree: Tree) -> str | None:
        """Of a text, an attribute, the payload or a field."""
        kind, name = tree
        if kind == "text":
            return str(name)
        if kind == "field":
            return self.fields.get(TEXT_FIELDS[name])
        if name == "payload":
            return None if self.payload == b"\xff" else self.payload.decode()
        found = self.fields["attributes"].get(name)
        return None if found is None else str(found)

    def number(self, tree: Tree) -> Any:
        """None: unknown; ints are exact, floats are not."""
        kind, *parts = tree
        if kind == "number":
            return parts[0]
        if kind == "field":
            return self.field(parts[0])
        if kind == "attribute":
            return read(self.text(tree))
        if kind == "minus":
            return operated("*", -1, self.number(parts[0]))
        return operated(parts[0], self.number(parts[1]), self.number(parts[2]))

    def field(self, name: str) -> int | None:
        """A number of the header."""
        if name == "JMSMessageID":
            return self.id
        if name == "JMSTimestamp":
            return TIME_US // 1000
        if name == "JMSExpiration":
            expires_at = self.fields.get("expires_at")
            return None if expires_at is None else expires_at // 1000
        return int(self.fields.get(NUMBER_FIELDS[name], 0))

    def truth(self, tree: Tree) -> bool | None:
        """True, false or None."""
        kind, *parts = tree
        if kind == "not":
            inner = self.truth(parts[0])
            return None if inner is None else not inner
        if kind in ("and", "or"):
            return joined_truth(kind == "or", [self.truth(part) for part in parts[0]])
        return self.of_test(kind, parts)

    def of_test(self, kind: str, parts: list[Any]) -> bool | None:
        """What has no conditions in it."""
        match kind:
            case "constant":
                found: bool | None = bool(parts[0])
            case "numbers":
                found = compared(parts[0], self.number(parts[1]), self.number(parts[2]))
            case "texts":
                found = compared(parts[0], self.text(parts[1]), self.text(parts[2]))
            case "is":
                found = boolean(self.text(parts[0]))
            case "booleans":
                found = compared(parts[0], boolean(self.text(parts[1])), parts[2])
            case "null":
                value = self.text(parts[0]) if is_text(parts[0]) else self.field(parts[0][1])
                found = (value is None) != parts[1]
            case _:
                found = self.of_value(kind, *parts)
        return found

    def of_value(self, kind: str, value: Tree, *others: Any) -> bool | None:
        """BETWEEN, IN and LIKE, with NOT or without."""
        if kind == "between":
            at, low, high = map(self.number, (value, *others[:2]))
            found = joined_truth(False, [compared("<=", low, at), compared("<=", at, high)])
        else:
            text = self.text(value)
            if text is None:
                return None
            found = text in others[0] if kind == "in" else is_like(text, others[0])
        return None if found is None else found != others[-1]


def joined_truth(decisive: bool, found: list[bool | None]) -> bool | None:
    """Of OR, which one true part decides, and of AND, which one false part does."""
    if decisive in found:
        return decisive
    return None if None in found else not decisive


def boolean(text: str | None) -> bool | None:
    """A text as a truth value."""
    return {"true": True, "false": False}.get((text or "").lower())


def is_text(tree: Tree) -> bool:
    """Whether it is an attribute or a field of text."""
    return tree[0] == "attribute" or tree[1] in TEXT_FIELDS


def is_like(text: str, pattern: str) -> bool:
    """By all prefixes of the pattern, one character of the text after another."""
    there = {0}
    for character in [*text, None]:
        for at in range(len(pattern)):
            if at in there and pattern[at] == "%":
                there.add(at + 1)
        if character is not None:
            there = {at for at in there if at < len(pattern) and pattern[at] == "%"} | {
                at + 1
                for at in there
                if at < len(pattern) and pattern[at] in ("_", character) and pattern[at] != "%"
            }
    return len(pattern) in there


def read(text: str | None) -> Any:
    """A text as a number."""
    if text is None or set(text) - set("0123456789.+-eE"):
        return None
    try:
        if not set(text) & set(".eE") and abs(int(text)) < 1 << 63:
            return int(text)
        return float(text)
    except ValueError:
        return None


def operated(sign: str, left: Any, right: Any) -> Any:
    """Of two numbers."""
    if left is None or right is None:
        return None
    if isinstance(left, int) and isinstance(right, int):
        if sign == "/":
            if right == 0:
                return None
            exact = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        else:
            exact = {"+": left + right, "-": left - right, "*": left * right}[sign]
        return exact if -(1 << 63) <= exact < 1 << 63 else None
    a, b = np.float64(left), np.float64(right)
    with np.errstate(all="ignore"):
        return float({"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign])


def compared(sign: str, left: Any, right: Any) -> bool | None:
    """Of two values of one kind."""
    if left is None or right is None:
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    return bool(COMPARED[sign](left, right))


COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@given(conditions, st.lists(messages, min_size=1, max_size=20))
def test_a_condition_is_what_the_model_says(tree: Tree, given: list[Given]) -> None:
    """Of messages alone, in slices and in whole blocks, of few messages and of more (TV1, TV2)."""
    text = written(tree)
    models = [Model(*message, FIRST_ID + row) for row, message in enumerate(given)]
    expected = [model.truth(tree) for model in models]
    block = block_of(given)
    assert chosen(block, text) == [each is True for each in expected]
    assert chosen(block, f"NOT ({text})") == [each is False for each in expected]

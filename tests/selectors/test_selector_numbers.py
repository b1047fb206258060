"""Numbers, exact and approximate: of one message and of many, against Python's own."""

from __future__ import annotations

import math
import operator
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.selectors.block_columns import numbers_of
from quire.selectors.numbers import (
    GREATEST,
    LEAST,
    NumberColumn,
    arithmetic,
    arithmetic_of,
    is_related,
    number_of,
    number_written,
    related,
)

Number = int | float

exact = st.one_of(
    st.integers(-9, 9),
    st.integers(LEAST, GREATEST),
    st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, 1 << 31, 1 << 32, 1 << 53, GREATEST]),
    st.integers(-(1 << 33), 1 << 33),
)
numbers = st.one_of(exact, st.floats(), st.none())
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12)
exact_pairs = st.lists(st.tuples(exact, exact), min_size=1, max_size=12)


def column_of(values: tuple[Number | None, ...]) -> NumberColumn:
    """As a block has them; where all are of one kind, the other one is not there."""
    is_exact = np.array([isinstance(each, int) for each in values])
    known = np.array([each is not None for each in values])
    integers = np.array([each if isinstance(each, int) else 0 for each in values], np.int64)
    doubles = np.array([0.0 if each is None else float(each) for each in values], np.float64)
    if is_exact.all():
        return NumberColumn.of_exact(integers)
    if not (is_exact & known).any():
        return NumberColumn.of_approximate(doubles, known)
    return NumberColumn(integers, doubles, is_exact, known)


def told(column: NumberColumn, count: int) -> list[Number | None]:
    """The numbers of a column, each as Python has it."""
    found: list[Number | None] = []
    for row in range(count):

        def at(values: Any, row: int = row) -> Any:
            return np.broadcast_to(values, count)[row].item()

        if not at(column.known):
            found.append(None)
        elif at(column.is_exact):
            found.append(int(at(column.exact)))
        else:
            found.append(float(at(column.approximate)))
    return found


def same(one: Number | None, other: Number | None) -> bool:
    """Equal, of one kind, with one sign; NaN is the same as itself."""
    return type(one) is type(other) and repr(one) == repr(other)


@pytest.mark.parametrize("sign", list("+-*/"))
@given(st.one_of(pairs, exact_pairs))
def test_columns_are_reckoned_as_single_numbers(
    sign: str, given: list[tuple[Number | None, Number | None]]
) -> None:
    """With one number for all on either side, too (SN2)."""
    left, right = zip(*given, strict=True)
    expected = [arithmetic_of(sign, *pair) for pair in given]
    found = told(arithmetic(sign, column_of(left), column_of(right)), len(given))
    assert all(map(same, found, expected)), (found, expected)
    first = told(arithmetic(sign, NumberColumn.of_number(left[0]), column_of(right)), len(given))
    assert all(map(same, first, [arithmetic_of(sign, left[0], each) for each in right]))


@pytest.mark.parametrize("sign", list("+-*/"))
@given(exact, exact)
def test_exact_numbers_are_right_or_have_no_value(sign: str, left: int, right: int) -> None:
    """Against fractions: a quotient is cut off, and what 64 bits do not hold is not there."""
    found = arithmetic_of(sign, left, right)
    if sign == "/" and right == 0:
        assert found is None
        return
    quotient = math.trunc(Fraction(left, right or 1))
    wholes = {"+": left + right, "-": left - right, "*": left * right, "/": quotient}
    whole = wholes[sign]
    assert found == (whole if LEAST <= whole <= GREATEST else None)


@pytest.mark.parametrize("sign", ["=", "<>", "<", "<=", ">", ">="])
@given(st.one_of(pairs, exact_pairs))
def test_columns_are_compared_as_single_numbers(
    sign: str, given: list[tuple[Number | None, Number | None]]
) -> None:
    """And these as Python compares ints, or doubles where one of them is approximate."""
    compare = {
        "=": operator.eq,
        "<>": operator.ne,
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }[sign]
    left, right = map(column_of, zip(*given, strict=True))
    found = np.broadcast_to(related(sign, left, right), len(given)).tolist()
    for (one, other), each in zip(given, found, strict=True):
        if one is None or other is None:
            continue
        both = isinstance(one, int) and isinstance(other, int)
        expected = compare(one, other) if both else compare(float(one), float(other))
        assert is_related(sign, one, other) is expected is each


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1), ("-01", -1), ("+9223372036854775807", GREATEST), ("1.", 1.0), (".5", 0.5),
        ("9223372036854775808", 2.0**63), ("-1e-3", -0.001), ("1E400", math.inf), ("", None),
        (".", None), ("1e", None), ("0x1", None), ("1_0", None), (" 1", None), ("1\n", None),
        ("nan", None), ("inf", None), ("٣", None), ("1" * 401, None), ("--1", None), ("1f", None),
    ],
)  # fmt: skip
def test_texts_that_are_numbers(text: str, expected: Number | None) -> None:
    """Decimal digits, with a sign, a point or an exponent; whole ones that fit are exact."""
    assert same(number_of(text), expected)


@given(st.one_of(st.text(max_size=6), st.text("0123456789.eE+-xXbLlfFdD_ ", max_size=8)))
def test_any_text_is_a_number_or_none(text: str) -> None:
    """What a message holds, and what a selector holds, raises nothing else."""
    number_of(text)
    with suppress(ValueError):
        number_written(text)


plain = st.one_of(
    st.integers(-(10**19), 10**19).map(str),
    st.text("0123456789-+./: e", max_size=20),
    st.none(),
)


@given(st.lists(plain, max_size=12), st.integers(0, 3))
def test_a_column_of_texts_is_read_as_each_of_them(texts: list[str | None], start: int) -> None:
    """Digits at once and others one by one; also of a part of an array."""
    rest = texts[start:]
    found = told(numbers_of(pa.array(texts, pa.string())[start:]), len(rest))
    expected = [None if text is None else number_of(text) for text in rest]
    assert all(map(same, found, expected)), (found, expected)

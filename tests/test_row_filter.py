"""Conditions on columns: what they choose, what they let be skipped, and what is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from quire.definitions.row_schema import schema_of_words
from quire.errors import InvalidArgument
from quire.limits import STATISTICS_ROWS
from quire.rows.row_block import reaches_of
from quire.rows.row_builder import RowBuilder
from quire.rows.row_filter import bound, bounds, chosen, parse
from quire.rows.row_input import rows_of

WORDS = (
    "id bigint, amount double, name string, price decimal(9, 2), day date, at timestamp, "
    "is_new boolean, tags array<string>"
)
ROWS: list[dict[str, Any]] = [
    {
        "id": each,
        "amount": each / 2,
        "name": f"n'{each}",
        "price": Decimal(each) / 4,
        "day": dt.date(2024, 1, 1) + dt.timedelta(days=each),
        "at": dt.datetime(2024, 1, 1, each, tzinfo=dt.UTC),
        "is_new": each % 2 == 0,
        "tags": ["a"] if each else None,
    }
    for each in range(9)
] + [dict.fromkeys(schema_of_words(WORDS).names)]

# The ids that a condition chooses; the last row has nulls only.
CONDITIONS: dict[str, list[int | None]] = {
    "id = 3": [3],
    "3 < id": [4, 5, 6, 7, 8],
    "id <> 3 and id <= 5": [0, 1, 2, 4, 5],
    "ID == 3": [],
    "id in (1, 2, 99)": [1, 2],
    "id not in (1, 2) and id < 4": [0, 3],
    "id between 2 and 3": [2, 3],
    "not id between 2 and 7": [0, 1, 8],
    "id not between 2 and 7 or id = 4": [0, 1, 4, 8],
    "amount > 3.25": [7, 8],
    "id > 6.5": [7, 8],
    "amount >= -1e3 and not (id > 1 or id = 0)": [1],
    "price = 0.25": [1],
    "price > 1": [5, 6, 7, 8],
    "name = 'n''3'": [3],
    "name >= 'n''7'": [7, 8],
    "`id` is null": [None],
    "id is not null and tags is null": [0],
    "not (id is null) and not is_new = true": [1, 3, 5, 7],
    "true = is_new": [0, 2, 4, 6, 8],
    "day < date '2024-01-03'": [0, 1],
    "at >= timestamp '2024-01-01 07:00:00'": [7, 8],
    "timestamp '2024-01-01T07:00:00Z' < at": [8],
    "id = 1 or id = 2 and amount = 0": [1],
    "id < 0": [],
}


def types() -> dict[str, pa.DataType]:
    """Of the columns."""
    return {field.name: field.type for field in schema_of_words(WORDS)}


@pytest.mark.parametrize("text", [text for text in CONDITIONS if text != "ID == 3"])
def test_a_condition_chooses_rows(text: str) -> None:
    """A condition chooses rows as SQL does."""
    [rows] = rows_of(WORDS, ROWS)
    condition = bound(parse(text), types())
    mask = chosen(condition, rows.batch.column)
    assert rows.batch.filter(mask).column("id").to_pylist() == CONDITIONS[text]


def test_a_block_is_skipped_only_if_nothing_is_chosen() -> None:
    """RF2, for all conditions over blocks of all kinds of runs."""
    conditions = [bound(parse(text), types()) for text in CONDITIONS if text != "ID == 3"]
    skipped = 0
    for size, start in [(n, start) for n in (1, 3, 9, 10) for start in range(11 - n)]:
        source = ROWS[start : start + size] * (STATISTICS_ROWS // size + 1)
        [rows] = rows_of(WORDS, source)
        builder = RowBuilder()
        builder.add(rows)
        [block] = builder.build(1 << 24)
        reaches = reaches_of(memoryview(block.data), "here")
        for condition in conditions:
            may = condition.may(reaches, len(source))
            there = any(chosen(condition, rows.batch.column).to_pylist())
            assert may or not there, (condition, start, size)
            skipped += not may
    assert skipped > 200


def test_bounds_of_positions() -> None:
    """What a range of positions can be narrowed to."""
    inf = float("inf")
    for text, expected in {
        "position >= 990": (990, inf),
        "position > 5 and position < 9 and x = 1": (5, 9),
        "position = 5 or position = 7": (5, 7),
        "position = 5 or x = 7": (-inf, inf),
        "not position >= 990": (-inf, 990),
        "position is not null": (-inf, inf),
    }.items():
        assert bounds(parse(text), "position") == expected, text


BAD = {
    "": "its end",
    "id": "its end",
    "id =": "its end",
    "id = other": "'other'",
    "= 5": "'='",
    "id = 5 id = 6": "'id'",
    "id = 5)": "'\\)'",
    "(id = 5": "its end",
    "id in ()": "'\\)'",
    "id is 5": "'5'",
    "id <=> 5": "'<=>'",
    "__import__('os')": "cannot be read",
    "id = 5; drop": "cannot be read",
    "name like 'a'": "'like'",
    "day = date '2024-13-01'": "is none",
    "(" * 100 + "id = 5": "nested",
    "id = " + "5" * 20_000: "bytes",
}


@pytest.mark.promise(13)
@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:20])
def test_what_is_no_condition_is_refused(text: str) -> None:
    """What is no condition is refused, with the place where it cannot be read."""
    with pytest.raises(InvalidArgument, match=BAD[text]):
        parse(text)


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    "text", ["ID = 3", "id = '3'", "name = 3", "day = '2024-01-01'", "tags = 'a'", "is_new = 1"]
)
def test_values_of_another_type_are_refused(text: str) -> None:
    """Values of another type are refused, and the error names the column."""
    with pytest.raises(InvalidArgument, match=text.split(maxsplit=1)[0]):
        bound(parse(text), types())


def test_garbage_is_refused_or_means_something(seed: int) -> None:
    """Any tokens in any order: an error of ours, or a condition."""
    rng = Random(f"conditions {seed}")
    words = [
        *["(", ")", "=", "<", ">", "<>", "5", ",", ".", "`", "-", "'a'"],
        "id",
        "and",
        "or",
        "not",
        "in",
        "is",
    ]
    words += ["null", "between", "date", "true", "_meta.x"]
    for _ in range(3000):
        text = " ".join(rng.choices(words, k=rng.randrange(1, 9)))
        try:
            parse(text)
        except InvalidArgument:
            continue

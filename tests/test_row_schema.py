"""The words of a schema: both ways, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from quire.definitions.row_schema import (
    check_grows,
    check_part,
    check_schema,
    first_difference,
    is_part,
    schema_of_words,
    words_of,
)
from quire.errors import InvalidArgument
from quire.limits import MAX_COLUMNS, MAX_SCHEMA_DEPTH

ALL = (
    "a boolean, b tinyint, c smallint, d int not null, e bigint, f float, g double, "
    "h decimal(38, 0), i string, j binary, k date, l timestamp, m timestamp_ntz, n array<int>, "
    "o map<string, array<double>>, p struct<x: int not null, y: struct<z: string>>, `q ``r` int"
)


def test_words_and_schema_undo_each_other() -> None:
    """RW1, for every type."""
    assert check_schema("schema", ALL) == ALL
    assert words_of(schema_of_words(ALL)) == ALL
    assert check_schema("schema", schema_of_words(ALL)) == ALL


def test_spark_writes_them_so() -> None:
    """Its other names, capital letters, spaces and colons."""
    words = "ID Long NOT NULL,Amount DECIMAL( 9 ,2 ), t TIMESTAMP_LTZ,s STRUCT<a:INTEGER,b real>"
    assert check_schema("schema", words) == (
        "ID bigint not null, Amount decimal(9, 2), t timestamp, s struct<a: int, b: float>"
    )
    assert check_schema("schema", "x dec, y byte") == "x decimal(10, 0), y tinyint"
    assert check_schema("schema", None) is None


def test_other_forms_become_those_of_the_table() -> None:
    """Other forms become those of the table of an Arrow schema."""
    schema = pa.schema(
        [
            ("a", pa.dictionary(pa.int32(), pa.large_string())),
            ("b", pa.timestamp("ms", "Europe/Berlin")),
            ("c", pa.large_list(pa.string_view())),
            ("d", pa.struct([pa.field("x", pa.timestamp("s"), nullable=False)])),
        ]
    )
    assert check_schema("schema", schema) == (
        "a string, b timestamp, c array<string>, d struct<x: timestamp_ntz not null>"
    )


BAD = {
    "": "its end",
    "id": "its end",
    "id text": "'id' of type 'text'",
    "id long,": "its end",
    "id long amount double": "'amount'",
    "a int, A int": "'A'",
    "_meta int": "'_meta'",
    "id int, _Meta int": "'_Meta': messages have their header under '_meta', and Spark",
    "a struct<>": "'>'",
    "a struct<x: int, X: int>": "'X'",
    "a decimal(39, 1)": "38 digits",
    "a decimal(5, 6)": "38 digits",
    "a decimal(99999999999, 1)": "cannot be read",
    "a array<int": "its end",
    "a int not": "'not'",
    "1 int": "'1'",
    "a int; b int": "'; b int'",
    "a " + "array<" * (MAX_SCHEMA_DEPTH + 1): "nested",
    ", ".join(f"c{each} int" for each in range(MAX_COLUMNS + 1)): "columns",
    f"{'x' * 9000} int": "bytes",
}


@pytest.mark.promise(13)
@pytest.mark.parametrize("words", BAD, ids=lambda words: words[:20])
def test_what_is_none_is_refused(words: str) -> None:
    """What is no schema is refused, and the error says where."""
    with pytest.raises(InvalidArgument, match=BAD[words]):
        check_schema("schema", words)


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    "type_", [pa.uint32(), pa.timestamp("ns"), pa.float16(), pa.duration("s"), pa.null()], ids=str
)
def test_types_that_spark_lacks_are_refused(type_: pa.DataType) -> None:
    """Types that Spark lacks are refused, and the error names the column."""
    with pytest.raises(InvalidArgument, match="'x' of type"):
        check_schema("schema", pa.schema([("x", type_)]))
    with pytest.raises(InvalidArgument, match="schema 5"):
        check_schema("schema", 5)


def test_a_schema_grows_by_nullable_columns() -> None:
    """At its end, and in no other way."""
    check_grows("q", "a int", "a int, b string")
    for after in ("a bigint", "b string, a int", "a int, b string not null", "a int not null"):
        with pytest.raises(InvalidArgument, match="queue 'q'"):
            check_grows("q", "a int", after)
    with pytest.raises(InvalidArgument, match="is not there"):
        check_grows("q", "a int, b int", "a int")
    with pytest.raises(InvalidArgument, match="bytes"):
        check_grows("q", None, "a int")
    check_part("q", "a int", "a int, b int")
    with pytest.raises(InvalidArgument, match="column 1 is 'b int', where the queue has 'a int'"):
        check_part("q", "b int", "a int")
    with pytest.raises(InvalidArgument, match="where the queue has none"):
        check_part("q", "a int, b int", "a int")
    with pytest.raises(InvalidArgument, match="they lack 'c int not null'"):
        check_part("q", "a int", "a int, b int, c int not null")
    assert is_part("a int", "a int, b int")
    assert not is_part("a int", "a int, b int not null")


@pytest.mark.parametrize(
    ("there", "asked", "said"),
    [
        ("a int, b int", "a int, b bigint", "column 2 is 'b int', not 'b bigint'"),
        ("a int", "a int not null", "column 1 is 'a int', not 'a int not null'"),
        ("a int, b int", "a int", "it has column 'b int' besides"),
        ("a int", "a int, b int", "it has no column 'b int'"),
        (None, "a int", "it holds bytes, not a int"),
        ("a int", None, "it holds rows, not bytes"),
    ],
)
def test_what_differs_is_told(there: str | None, asked: str | None, said: str) -> None:
    """The first column that is another one."""
    assert said in first_difference(there, asked)

"""`quire graph state` over a store whose graph nobody runs: keys of all types, and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest

from quire import keyed
from quire.cli import main
from quire.engine import EmbeddedStore as Store
from quire.graphs import GraphDefinition, StepDefinition, save_graph

ZONED, NAIVE = datetime(2026, 1, 31, 12, 30, tzinfo=UTC), datetime(2026, 1, 31, 12, 30)  # noqa: DTZ001
KEYS = {
    "bigint": -(2**63),
    "tinyint": 7,
    "boolean": True,
    "date": date(2026, 1, 31),
    "timestamp": ZONED,
    "timestamp_ntz": NAIVE,
    "string": 'a "b"\n\u00fc',
    "binary": b"\0\xff",
}
"""A key of each type that a key may have; the state of a type is called by it."""


@pytest.fixture
def path(store_path: str) -> Iterator[str]:
    """Of a store in which one step changes a state of each type, and another only reads two."""
    with Store.open(store_path, background=False) as store:
        steps = (
            StepDefinition("change", "step", ("in",), states=tuple(KEYS)),
            StepDefinition("look", "step", ("in",), ("out",), tables=("bigint",)),
            StepDefinition("looks", "step", ("in",), ("out",), tables=("bigint", "date")),
            StepDefinition("plain", "step", ("in",), ("out",)),
        )
        save_graph(store, GraphDefinition("shop", (), steps))
        for type_, value in KEYS.items():
            state = keyed.open_state(store, type_, "k", f"k {type_}, v bigint")
            with store.transaction() as txn, state.within(txn) as rows:
                rows.put([{"k": value, "v": 1}])
    yield store_path
    with Store.open(store_path, background=False) as store:
        assert store.admin.verify().ok


@pytest.mark.parametrize("type_", KEYS)
def test_a_key_is_given_as_rows_show_it(
    path: str, capsys: pytest.CaptureFixture[str], type_: str
) -> None:
    """So what one command prints another one takes."""
    with Store.open(path, background=False) as store:
        (row,) = keyed.open_state(store, type_).get([KEYS[type_]]).to_pylist()
    assert row == {"k": KEYS[type_], "v": 1}
    texts = {
        "boolean": "true",
        "binary": "AP8=",
        "timestamp": "2026-01-31T12:30:00+00:00",
        "timestamp_ntz": "2026-01-31T12:30:00",
    }
    text = texts.get(type_, str(KEYS[type_]))
    assert main(["graph", "state", path, "shop", "change", text, "--name", type_]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert str(shown["k"]).lower() == text.lower()


@pytest.mark.parametrize(
    "text", ["2026-01-31T12:30:00Z", "2026-01-31 14:30:00+02:00", "2026-01-31 12:30:00"]
)
def test_a_time_without_a_zone_is_in_utc(
    path: str, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """As it is in a put."""
    assert main(["graph", "state", path, "shop", "change", text, "--name", "timestamp"]) == 0
    assert json.loads(capsys.readouterr().out)["k"] == "2026-01-31T12:30:00+00:00"


@pytest.mark.parametrize(
    ("type_", "text", "told"),
    [
        ("bigint", "1.5", "'1.5' is no bigint, which the column 'k' of the key is: give a whole"),
        ("tinyint", "300", "a whole number that the type holds"),
        ("boolean", "perhaps", "give true or false"),
        ("date", "31.1.2026", "give one as 2026-01-31"),
        ("timestamp", "noon", "give one as 2026-01-31T12:30:00Z, in UTC if no zone is there"),
        ("timestamp_ntz", "2026-01-31T12:30:00Z", "without a zone"),
        ("binary", "\u00fc", "give its base64, as rows show it"),
    ],
)
def test_a_key_that_is_none(
    path: str, capsys: pytest.CaptureFixture[str], type_: str, text: str, told: str
) -> None:
    """It is told in the words of schemas, with an example."""
    assert main(["graph", "state", path, "shop", "change", text, "--name", type_]) == 1
    assert told in capsys.readouterr().err


def test_a_step_that_only_reads_tables(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tables are listed, and the only one is meant where none is named."""

    def state(*words: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main(["graph", "state", path, "shop", *words]) == status
        found = capsys.readouterr()
        return found.err if status == 1 else found.out

    assert state("look").splitlines()[1].split()[0] == "bigint"
    assert json.loads(state("look", str(-(2**63)))) == {"k": -(2**63), "v": 1}
    assert state("look", "8", status=3) == ""
    assert [each["name"] for each in json.loads(state("looks", "--json"))] == ["bigint", "date"]
    assert "the states bigint, date: name one" in state("looks", "8", status=1)
    assert json.loads(state("plain", "--json")) == []
    assert "has the states none" in state("plain", "8", status=1)

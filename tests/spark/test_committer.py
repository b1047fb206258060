"""The commit of a sink, where it is not known what became of it. No Spark session is needed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quire
from quire.errors import OutcomeUnknown, QueueNotFound
from quire.spark_graphs import connection
from quire.spark_graphs.committer import Committer
from quire.spark_graphs.fragment import Fragment, TaskMessage
from quire.spark_graphs.fragment_file import FragmentWriter
from quire.spark_graphs.options import WriteOptions
from quire.spark_graphs.schema import source_schema
from quire.spark_graphs.writer import StreamWriter
from tests.spark.kit import numbers_in, topic

pytestmark = pytest.mark.promise(2)


@pytest.fixture
def store(store_path: str) -> Iterator[Any]:
    """A store with two queues."""
    with quire.open(store_path) as opened:
        topic(opened, "a", "b")
        yield opened
        connection.forget(store_path)
        assert opened.verify().ok


class Doubtful:
    """A connection that is lost in a commit, after it took effect or before."""

    def __init__(self, store: Any, took_effect: bool) -> None:
        self.store, self.took_effect = store, took_effect

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def close(self) -> None:
        """It is lost anyway."""

    def transaction(self) -> Doubtful:
        self.inner = self.store.transaction()
        return self

    def __enter__(self) -> Any:
        return self.inner.__enter__()

    def __exit__(self, *exception: Any) -> None:
        if self.took_effect:
            self.inner.__exit__(*exception)
        else:
            self.inner.rollback()
        raise OutcomeUnknown("the owner died during the commit")


def fragments_of(store: Any, count: int = 20_000) -> list[Fragment]:
    """A task's messages: a file for `a`, a block for `b`."""
    writer = FragmentWriter(store.path, store.store_id)
    writer.add("a", pa.record_batch({"payload": [b"%d" % n for n in range(count)]}))
    writer.add("b", pa.record_batch({"payload": [b"7"]}))
    found = writer.finish()
    assert [fragment.ltds_id is None for fragment in found] == [False, True]
    return found


def files(store: Any) -> list[str]:
    """What is in the directory of large transactions."""
    return sorted(os.listdir(Path(store.path, "ltds")))


@pytest.mark.parametrize("took_effect", [True, False])
def test_an_unknown_outcome_is_found_in_the_ledger(store: Any, took_effect: bool) -> None:
    """The commit is repeated: put once in any case, and no adopted file is removed (YC2, YC3)."""
    made = fragments_of(store)
    connection._stores[os.getpid(), store.path] = Doubtful(store, took_effect)  # type: ignore[assignment]
    Committer(store.path, "spark:q", 3, 1.0).commit(made)
    assert numbers_in(store, "a") == Counter(range(20_000))
    assert numbers_in(store, "b") == Counter([7])
    assert store.ledger("spark:q") == 3
    assert len(files(store)) == 1


def test_without_a_key_an_unknown_outcome_is_raised(store: Any) -> None:
    """Repeating it might put the messages twice."""
    made = fragments_of(store)
    connection._stores[os.getpid(), store.path] = Doubtful(store, True)  # type: ignore[assignment]
    with pytest.raises(OutcomeUnknown, match="give txnAppId and txnVersion"):
        Committer(store.path, None, None, 1.0).commit(made)
    assert numbers_in(store, "a") == Counter(range(20_000))


def test_a_known_version_throws_the_fragments_away(store: Any) -> None:
    """The same for an older one (YC1)."""
    Committer(store.path, "spark:q", 3, 1.0).commit(fragments_of(store))
    before = files(store)
    for version in (3, 2):
        Committer(store.path, "spark:q", version, 1.0).commit(fragments_of(store))
    assert files(store) == before
    assert numbers_in(store, "b") == Counter([7])


def test_a_commit_that_fails_for_good_leaves_no_file(store: Any) -> None:
    """Neither messages nor fragments."""
    made = [*fragments_of(store), Fragment("nowhere", 1, block=fragments_of(store)[1].block)]
    with pytest.raises(QueueNotFound, match="create it first"):
        Committer(store.path, "spark:q", 1, 1.0).commit(made)
    assert store.positions("a") == (0, 0)
    assert len(files(store)) == 1  # of the second call above, which no commit named


@pytest.mark.parametrize("complete", [True, False])
def test_abort_removes_only_what_no_commit_can_have_taken(store: Any, complete: bool) -> None:
    """With all messages there, a commit may have run; with one missing it has not (YW3)."""
    options = WriteOptions(store.path, None, None, None, 1.0)
    writer = StreamWriter(options, source_schema(), False)
    messages: list[Any] = [TaskMessage(fragments_of(store), "q", "r", 0)]
    writer.abort(messages if complete else [*messages, None], 0)
    assert len(files(store)) == (1 if complete else 0)


def test_abort_never_raises(store: Any) -> None:
    """Not even when there is nothing, or the files are gone."""
    options = WriteOptions(store.path, None, None, None, 1.0)
    writer = StreamWriter(options, source_schema(), False)
    gone: list[Any] = [TaskMessage([Fragment("a", 1, ltds_id=1 << 62)], "q", "r", 0), None]
    cases: list[list[Any]] = [[], [None], gone]
    for messages in cases:
        writer.abort(messages, 0)

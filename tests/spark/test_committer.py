"""The commit of a sink, where it is not known what became of it. No Spark session is needed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import quire
from quire.errors import InputChanged, InvalidArgument, OutcomeUnknown, QueueNotFound
from quire.spark_graphs import connection
from quire.spark_graphs.checkpoint.offset_log import UNKNOWN
from quire.spark_graphs.fragments.fragment import Fragment, TaskMessage
from quire.spark_graphs.fragments.fragment_file import FragmentWriter
from quire.spark_graphs.options import WriteOptions, read_options
from quire.spark_graphs.planning.queue_choice import queues_read
from quire.spark_graphs.schema import source_schema
from quire.spark_graphs.writing import sink_queues
from quire.spark_graphs.writing.sink_committer import FragmentCommitter
from quire.spark_graphs.writing.sink_writer import StreamWriter
from tests.spark.numbered_queues import numbers_in, topic

pytestmark = pytest.mark.promise(2)


@pytest.fixture
def store(store_path: str) -> Iterator[Any]:
    """A store with two queues."""
    with quire.open(store_path) as opened:
        topic(opened, "a", "b")
        yield opened
        connection.forget(store_path)
        assert opened.admin.verify().ok


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
    writer = FragmentWriter(store.path, store.integration.store_id)
    payloads = [b"%d" % n for n in range(count)]
    writer.add(pa.record_batch({"payload": [*payloads, b"7"]}), {"a": count, "b": 1})
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
    FragmentCommitter(store.path, "spark:q", 3, 1.0).commit(made)
    assert numbers_in(store, "a") == Counter(range(20_000))
    assert numbers_in(store, "b") == Counter([7])
    assert store.integration.ledger("spark:q") == 3
    assert len(files(store)) == 1


def test_without_a_key_an_unknown_outcome_is_raised(store: Any) -> None:
    """Repeating it might put the messages twice."""
    made = fragments_of(store)
    connection._stores[os.getpid(), store.path] = Doubtful(store, True)  # type: ignore[assignment]
    with pytest.raises(OutcomeUnknown, match="give txnAppId and txnVersion"):
        FragmentCommitter(store.path, None, None, 1.0).commit(made)
    assert numbers_in(store, "a") == Counter(range(20_000))


def test_a_known_version_throws_the_fragments_away(store: Any) -> None:
    """The same for an older one (YC1)."""
    FragmentCommitter(store.path, "spark:q", 3, 1.0).commit(fragments_of(store))
    before = files(store)
    for version in (3, 2):
        FragmentCommitter(store.path, "spark:q", version, 1.0).commit(fragments_of(store))
    assert files(store) == before
    assert numbers_in(store, "b") == Counter([7])


def commit(store: Any, version: int, digest: int | None) -> None:
    """A micro-batch of the query `q`, with this input."""
    FragmentCommitter(store.path, "spark:q", version, 1.0, input_digest=digest).commit(
        fragments_of(store)
    )


def test_a_known_micro_batch_is_skipped_only_with_its_input(store: Any) -> None:
    """Another input under its number, or under an older one, is refused, and leaves nothing."""
    commit(store, 3, 5)
    before = files(store)
    commit(store, 3, 5)
    for version, digest, said in (
        (3, 6, "with another input"),
        (3, UNKNOWN, "cannot be seen"),
        (2, 5, "has those of the same query up to 3"),
        (2, UNKNOWN, "has those of the same query up to 3"),
    ):
        with pytest.raises(InputChanged, match=said) as caught:
            commit(store, version, digest)
        assert "start the query with a new checkpoint" in str(caught.value)
    assert files(store) == before
    assert numbers_in(store, "b") == Counter([7])
    commit(store, 4, 6)
    assert numbers_in(store, "b") == Counter([7, 7])


@pytest.mark.parametrize("first", [None, UNKNOWN])
def test_an_input_that_was_not_known_is_taken_for_the_same(store: Any, first: int | None) -> None:
    """The ledger of an earlier release (None), a checkpoint elsewhere; the next one is known."""
    commit(store, 3, first)
    commit(store, 3, 6)
    assert numbers_in(store, "b") == Counter([7])
    commit(store, 4, 7)
    with pytest.raises(InputChanged, match="with another input"):
        commit(store, 4, 8)
    assert numbers_in(store, "b") == Counter([7, 7])


def test_an_input_that_an_earlier_release_did_not_record(store: Any) -> None:
    """It committed a micro-batch between two of this release: the old digest is not its input."""
    commit(store, 3, 5)
    commit(store, 4, None)
    commit(store, 4, 6)
    assert numbers_in(store, "b") == Counter([7, 7])


def test_one_of_two_commits_at_once_compares_its_input(store: Any) -> None:
    """The ledger is asked again when another commit came between the check and the end."""

    class Late(FragmentCommitter):
        def _put(self, *args: Any) -> None:
            super()._put(*args)
            if store.integration.ledger("spark:q") is None:
                commit(store, 3, 5)

    with pytest.raises(InputChanged, match="with another input"):
        Late(store.path, "spark:q", 3, 1.0, input_digest=6).commit(fragments_of(store))
    assert numbers_in(store, "b") == Counter([7])


def test_a_commit_that_fails_for_good_leaves_no_file(store: Any) -> None:
    """Neither messages nor fragments."""
    made = [*fragments_of(store), Fragment("nowhere", 1, block=fragments_of(store)[1].block)]
    with pytest.raises(QueueNotFound, match="create it first"):
        FragmentCommitter(store.path, "spark:q", 1, 1.0).commit(made)
    assert store.integration.positions("a") == (0, 0)
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


def test_volatile_queues_are_refused(store: Any) -> None:
    """As a sink, small shares and large ones, as a source, and by a pattern: with the reason."""
    made = fragments_of(store)
    store.create_queue("v", kind="topic", type="volatile")
    store.subscribe("v", "s")
    for fragment in made:
        wrong = replace(fragment, queue="v")
        with pytest.raises(InvalidArgument, match="queue 'v' is volatile"):
            FragmentCommitter(store.path, "spark:q", 1, 1.0).commit([wrong])
    with pytest.raises(InvalidArgument, match="queue 'v' is volatile"):
        sink_queues.check(store.path, ["a", "v"])
    given = {"path": store.path, "queue": "v", "subscription": "s"}
    with pytest.raises(InvalidArgument, match="queue 'v' is volatile"):
        queues_read(store, read_options(given, streaming=True), streaming=True)
    given = {"path": store.path, "subscribePattern": ".*", "subscription": "s"}
    found = queues_read(store, read_options(given, streaming=True), streaming=True)
    assert [queue.name for queue in found] == ["a", "b"]
    assert store.integration.ledger("spark:q") is None
    assert files(store) == []

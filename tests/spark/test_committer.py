"""The commit of a sink, where it is not known what became of it. No Spark session is needed."""

from __future__ import annotations

import datetime as dt
import os
import pickle
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
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
from quire.spark_graphs.source import QuireDataSource
from quire.spark_graphs.writing import sink_queues, sink_writer
from quire.spark_graphs.writing.content_digest import ContentDigests, sum_of_digests
from quire.spark_graphs.writing.sink_committer import FragmentCommitter
from quire.spark_graphs.writing.sink_writer import StreamWriter
from quire.spark_graphs.writing.write_ledger import BatchLedger, StreamLedger
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
    FragmentCommitter(store.path, StreamLedger("q", 3), 1.0).commit(made)
    assert numbers_in(store, "a") == Counter(range(20_000))
    assert numbers_in(store, "b") == Counter([7])
    assert store.integration.ledger("spark:q") == 3
    assert len(files(store)) == 1


def test_without_a_key_an_unknown_outcome_is_raised(store: Any) -> None:
    """Repeating it might put the messages twice."""
    made = fragments_of(store)
    connection._stores[os.getpid(), store.path] = Doubtful(store, True)  # type: ignore[assignment]
    with pytest.raises(OutcomeUnknown, match="give txnAppId and txnVersion"):
        FragmentCommitter(store.path, None, 1.0).commit(made)
    assert numbers_in(store, "a") == Counter(range(20_000))


def test_a_known_version_throws_the_fragments_away(store: Any) -> None:
    """The same for an older one (YC1)."""
    FragmentCommitter(store.path, StreamLedger("q", 3), 1.0).commit(fragments_of(store))
    before = files(store)
    for version in (3, 2):
        FragmentCommitter(store.path, StreamLedger("q", version), 1.0).commit(fragments_of(store))
    assert files(store) == before
    assert numbers_in(store, "b") == Counter([7])


def commit(store: Any, version: int, digest: int | None) -> None:
    """A micro-batch of the query `q`, with this input."""
    FragmentCommitter(store.path, StreamLedger("q", version, digest), 1.0).commit(
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
        Late(store.path, StreamLedger("q", 3, 6), 1.0).commit(fragments_of(store))
    assert numbers_in(store, "b") == Counter([7])


def test_a_commit_that_fails_for_good_leaves_no_file(store: Any) -> None:
    """Neither messages nor fragments."""
    made = [*fragments_of(store), Fragment("nowhere", 1, block=fragments_of(store)[1].block)]
    with pytest.raises(QueueNotFound, match="create it first"):
        FragmentCommitter(store.path, StreamLedger("q", 1), 1.0).commit(made)
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


def test_a_sink_that_only_commits_asks_for_nothing_of_tasks(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner is asked where a micro-batch is planned, and not once more where it ends."""
    asked: list[str] = []
    monkeypatch.setattr(sink_writer, "target_at", asked.append)
    given = {"path": store.path, "queue": "a"}
    source = QuireDataSource(given)
    source.streamWriter(source_schema(), False)
    assert asked == [store.path]
    pickle.loads(pickle.dumps(source)).streamWriter(source_schema(), False)
    assert asked == [store.path]


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
            FragmentCommitter(store.path, StreamLedger("q", 1), 1.0).commit([wrong])
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


def numbered(store: Any, queue: str, numbers: range) -> list[Fragment]:
    """What a task has written for a queue."""
    writer = FragmentWriter(store.path, store.integration.store_id)
    writer.add(pa.record_batch({"payload": [b"%d" % n for n in numbers]}), {queue: len(numbers)})
    return writer.finish()


def contents(numbers: range, queue: str) -> dict[str, int]:
    """The digest of rows, as the tasks of a batch write tell it."""
    digests = ContentDigests(queue)
    list(digests.passed([pa.record_batch({"payload": [b"%d" % n for n in numbers]})]))
    return digests.by_queue


def write(
    store: Any, queue: str, version: int, numbers: range, query: str | None = None, **more: Any
) -> None:
    """A batch write with `txnAppId` and `txnVersion`."""
    ledger = BatchLedger("app", version, more.get("contents", contents(numbers, queue)), query)
    FragmentCommitter(store.path, ledger, 1.0).commit(numbered(store, queue, numbers))


@pytest.mark.parametrize("digest", [None, 5])
def test_a_micro_batch_is_known_by_its_queue(store: Any, digest: int | None) -> None:
    """Two queries with one checkpoint, copied, and a queue each: neither skips what it has not.

    So it is with a queue that is dropped and made again: what it had is not in the new one.
    """

    def run(queue: str, numbers: range, digest: int | None = digest) -> None:
        ledger = StreamLedger("q", 3, digest, queue)
        FragmentCommitter(store.path, ledger, 1.0).commit(numbered(store, queue, numbers))

    for queue in ("a", "b", "a"):
        run(queue, range(5))
    assert numbers_in(store, "a") == numbers_in(store, "b") == Counter(range(5))
    if digest is not None:
        with pytest.raises(InputChanged, match="with another input"):
            run("b", range(5), digest + 1)
    store.drop_queue("b")
    topic(store, "b")
    run("b", range(5))
    assert numbers_in(store, "b") == Counter(range(5))


def test_a_batch_write_is_known_by_its_queue(store: Any) -> None:
    """One `txnAppId` and version for two queues, as a `foreachBatch` has them: both are written.

    Again, in a new process, neither is; nor where both are written at once.
    """
    for _ in range(2):
        for queue in ("a", "b"):
            write(store, queue, 7, range(5))
    together = [*numbered(store, "a", range(5)), *numbered(store, "b", range(5))]
    digests = {**contents(range(5), "a"), **contents(range(5), "b")}
    FragmentCommitter(store.path, BatchLedger("app", 7, digests), 1.0).commit(together)
    assert numbers_in(store, "a") == numbers_in(store, "b") == Counter(range(5))
    write(store, "a", 6, range(9))  # an older one, of a job without a checkpoint
    write(store, "b", 8, range(5, 9))
    assert numbers_in(store, "a") == Counter(range(5))
    assert numbers_in(store, "b") == Counter(range(9))


def test_only_what_a_queue_does_not_have_is_written(store: Any) -> None:
    """Of a write to several queues; the files of the others are gone."""
    write(store, "a", 7, range(20_000))
    before = files(store)
    together = [*numbered(store, "a", range(20_000)), *numbered(store, "b", range(20_000))]
    digests = {**contents(range(20_000), "a"), **contents(range(20_000), "b")}
    FragmentCommitter(store.path, BatchLedger("app", 7, digests), 1.0).commit(together)
    assert numbers_in(store, "a") == numbers_in(store, "b") == Counter(range(20_000))
    assert len(files(store)) == len(before) + 1


def test_other_rows_under_a_known_version_are_refused(store: Any) -> None:
    """Nothing of them is written, and nothing is left of them; large versions are as good."""
    for version in (7, 1_763_856_000_000, 2**63 - 1):
        write(store, "a", version, range(5))
        with pytest.raises(InputChanged, match=f"has version {version} of txnAppId 'app' with oth"):
            write(store, "a", version, range(5, 10))
        write(store, "a", version, range(5))
        write(store, "a", version, range(5, 10), contents=None)  # txnCheck=version
    assert numbers_in(store, "a") == Counter([*range(5)] * 3)


def test_an_old_id_with_a_new_checkpoint_is_refused(store: Any) -> None:
    """Its micro-batches count from 0 again: they are others, whatever rows they have."""
    for version in range(3):
        write(store, "a", version, range(version, version + 1), query="old")
    for version in (0, 2):
        with pytest.raises(InputChanged, match="give it a txnAppId of its own"):
            write(store, "a", version, range(version, version + 1), query="new")
    write(store, "a", 1, range(1, 2), query="old")
    assert numbers_in(store, "a") == Counter(range(3))


def test_two_writes_at_once_look_into_the_ledger_again(store: Any) -> None:
    """One that another came before, with an older version, is written all the same."""

    class Late(FragmentCommitter):
        late = True

        def _put(self, *args: Any) -> None:
            super()._put(*args)
            if self.late:
                self.late = False
                write(store, "a", 1, range(3))

    ledger = BatchLedger("app", 2, contents(range(3, 6), "a"))
    Late(store.path, ledger, 1.0).commit(numbered(store, "a", range(3, 6)))
    assert numbers_in(store, "a") == Counter(range(6))


def test_a_digest_is_of_the_rows_and_not_of_their_order() -> None:
    """Nor of tasks and batches; but of each value, its column, and how often a row is there."""
    rows: dict[str, list[Any]] = {
        "payload": [b"a", b"b", b"", b"b"],
        "number": [1, 2, None, 0],
        "text": ["x", None, "", "y"],
        "amount": [0.5, float("nan"), -0.0, None],
        "is_new": [True, False, None, True],
        "price": [Decimal("1.5"), None, Decimal(2), Decimal(0)],
        "at": [dt.date(2024, 1, 1), None, dt.date(1960, 1, 1), dt.date(2024, 1, 1)],
        "tags": [["a"], [], None, ["a", "b"]],
    }
    batch = pa.record_batch(rows)

    def digest(*batches: pa.RecordBatch) -> int:
        found = []
        for each in batches:
            digests = ContentDigests("q")
            list(digests.passed([each]))
            found.append(digests.by_queue)
        return sum_of_digests(found)["q"]

    assert digest(batch) == digest(batch.take(pa.array([2, 0, 3, 1])))
    assert digest(batch) == digest(batch.slice(3), batch.slice(0, 3))
    assert digest(batch) == digest(batch.select(list(reversed(batch.schema.names))))
    seen = {digest(batch), digest(batch, batch.slice(1, 1)), digest(batch.slice(1))}
    for name in rows:
        changed = {**rows, name: [rows[name][1], rows[name][0], *rows[name][2:]]}
        seen.add(digest(pa.record_batch(changed, schema=batch.schema)))
    assert len(seen) == 3 + len(rows)
    by_row = ContentDigests(None)
    list(by_row.passed([batch.append_column("queue", pa.array(["p", "q", "q", "p"]))]))
    assert by_row.by_queue["p"] == digest(batch.slice(0, 1), batch.slice(3))
    assert by_row.by_queue["q"] == digest(batch.slice(1, 2))

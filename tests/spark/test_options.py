"""The options of `format("quire")`: what they mean, and what is refused with which advice."""

from __future__ import annotations

import re

import pytest

from quire.errors import InvalidArgument
from quire.ltds import Compression
from quire.spark_graphs import options as options_module
from quire.spark_graphs.options import (
    EARLIEST,
    LATEST,
    Side,
    quantity_of_seconds,
    read_options,
    write_options,
)
from tests.source_tree import ROOT

BASE = {"path": "/store", "queue": "orders"}


def test_defaults_are_those_of_the_kafka_connector() -> None:
    """A stream starts at the latest message, a batch read takes everything."""
    stream = read_options(BASE, streaming=True)
    assert (stream.starting, stream.fail_on_data_loss, stream.max_messages) == (LATEST, True, None)
    batch = read_options(BASE, streaming=False)
    assert (batch.starting, batch.ending, batch.queues) == (EARLIEST, LATEST, ("orders",))


def test_a_store_may_be_at_a_server() -> None:
    """Its URL stands in the place of a path; neither that nor an option takes a secret."""
    for path, found in {
        "quire://store.example:7400/": "quire://store.example:7400",
        "quire://a:1,[::1]:2": "quire://a:1,[::1]:2",
    }.items():
        assert read_options({**BASE, "path": path}, streaming=True).path == found
        assert write_options({"path": path}, streaming=False).path == found
    for path in ("quire://", "quire://host", "quire://host:port", "quire://host:1/queue"):
        with pytest.raises(InvalidArgument, match="quire://host:port"):
            read_options({**BASE, "path": path}, streaming=False)
    with pytest.raises(InvalidArgument, match="QUIRE_TOKEN") as refused:
        read_options({**BASE, "path": "quire://user:secret@host:1"}, streaming=False)
    assert "secret" not in str(refused.value)
    with pytest.raises(InvalidArgument, match="QUIRE_TOKEN") as refused:
        read_options({**BASE, "token": "secret"}, streaming=False)
    assert "secret" not in str(refused.value)


def test_names_are_case_insensitive() -> None:
    """Spark hands options over in lower case."""
    options = {"PATH": "/s", "Subscribe": "b, a", "maxmessagespertrigger": "5"}
    read = read_options(options, streaming=True)
    assert (read.queues, read.max_messages) == (("b", "a"), 5)


def test_offsets_are_words_or_json() -> None:
    """A position for each queue, or earliest and latest by Kafka's numbers."""
    read = read_options(
        {**BASE, "startingOffsets": '{"orders": 7}', "endingOffsets": '{"orders": -1}'},
        streaming=False,
    )
    assert (read.starting, read.ending) == ({"orders": 7}, {"orders": LATEST})
    assert read_options({**BASE, "startingOffsets": "Earliest"}, streaming=True).starting == -2


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"queue": "q"}, "'path' is missing"),
        ({"path": "store", "queue": "q"}, "must be absolute"),
        ({"path": "/s"}, "exactly one of 'queue'"),
        ({"path": "/s", "queue": "a", "subscribe": "b"}, "exactly one of 'queue'"),
        ({"path": "/s", "subscribe": "a,,b"}, "a name is empty"),
        ({"path": "/s", "subscribe": "a,b,a"}, "twice"),
        ({**BASE, "subscripton": "s"}, "did you mean 'subscription'"),
        ({**BASE, "topic": "s"}, "use 'queue'"),
        (
            {**BASE, "maxOffsetsPerTrigger": "5", "maxMessagesPerTrigger": "5"},
            "'maxOffsetsPerTrigger' is another name of 'maxMessagesPerTrigger'",
        ),
        ({**BASE, "maxBytesPerTrigger": "5x"}, "such as 64m"),
        ({**BASE, "maxBytesPerTrigger": "0"}, "a number from 1 on"),
        ({**BASE, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "such as 15m"),
        ({**BASE, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "15mb"}, "such as 15m"),
        ({**BASE, "maxTriggerDelay": "15m"}, "give both, or neither"),
        ({**BASE, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "more than the 4"),
        ({**BASE, "subscribePattern": ".*"}, "exactly one of 'queue'"),
        ({"path": "/s", "subscribePattern": "(a"}, "no regular expression"),
        ({"path": "/s", "subscribePattern": "a", "startingOffsets": '{"a": 1}'}, "give earliest"),
        ({"path": "/s", "queue": "a/b"}, "queue name 'a/b': use 1 to 200"),
        ({"path": "/s", "subscribe": "a,.b"}, "queue name '.b': use 1 to 200"),
        ({**BASE, "assign": "{}"}, "a queue has no partitions"),
        ({**BASE, "zzz": "5"}, "unknown option 'zzz'"),
        ({**BASE, "txnAppId": "5"}, "'txnAppId' belongs to a batch write"),
        ({**BASE, "endingOffsets": "latest"}, "'endingOffsets' belongs to a batch read"),
        ({**BASE, "maxMessagesPerTrigger": "0"}, "at least 1"),
        ({**BASE, "minPartitions": "many"}, "whole number"),
        ({**BASE, "failOnDataLoss": "perhaps"}, "true or false"),
        ({**BASE, "startingOffsets": "yesterday"}, "give earliest, latest, or JSON"),
        ({**BASE, "startingOffsets": '{"orders": -3}'}, "give earliest, latest, or JSON"),
        ({**BASE, "startingOffsets": '{"orders": true}'}, "give earliest, latest, or JSON"),
        ({**BASE, "startingOffsets": '{"others": 3}'}, "a position for each of orders"),
    ],
)
def test_wrong_source_options_say_what_to_change(options: dict[str, str], advice: str) -> None:
    """Nothing is ignored, and every error says how to go on."""
    with pytest.raises(InvalidArgument, match=re.escape(advice)):
        read_options(options, streaming=True)


@pytest.mark.parametrize(
    ("options", "streaming", "advice"),
    [
        ({"path": "/s", "txnAppId": "a"}, False, "'txnVersion' together"),
        ({"path": "/s", "txnVersion": "1"}, False, "'txnVersion' together"),
        ({"path": "/s", "txnAppId": "a", "txnVersion": "-1"}, False, "at least 0"),
        ({"path": "/s", "txnAppId": "a", "txnVersion": "1"}, True, "not to a streaming write"),
        ({"path": "/s", "startingOffsets": "latest"}, True, "not to a streaming write"),
        ({"path": "/s", "queueFullTimeout": "-1"}, True, "number of seconds"),
        ({"path": "/s", "queueFullTimeout": "nan"}, True, "number of seconds"),
        ({"path": "/s", "compression": "gzip"}, True, "zstd, lz4 or none"),
        ({"path": "/s", "queue": "a b"}, True, "queue name 'a b': use 1 to 200"),
        ({"path": "/s", "subscribePattern": "a.*"}, True, "not to a streaming write"),
    ],
)
def test_wrong_sink_options_say_what_to_change(
    options: dict[str, str], streaming: bool, advice: str
) -> None:
    """The sink's options are checked alike."""
    with pytest.raises(InvalidArgument, match=re.escape(advice)):
        write_options(options, streaming=streaming)


def test_limits_have_the_names_of_the_kafka_connector() -> None:
    """Sizes and times with units, as in Spark's own options."""
    options = {
        "maxOffsetsPerTrigger": "50",
        "minOffsetsPerTrigger": "20",
        "maxTriggerDelay": "2min",
        "maxBytesPerTrigger": "64m",
    }
    read = read_options({**BASE, **options}, streaming=True)
    assert (read.max_messages, read.min_messages) == (50, 20)
    assert (read.max_delay_seconds, read.max_bytes) == (120.0, 64 << 20)
    defaults = read_options({**BASE, "minOffsetsPerTrigger": "20"}, streaming=True)
    assert (defaults.max_delay_seconds, defaults.max_bytes) == (900.0, None)
    for text, size in (("100", 100), ("2kb", 2048), ("1 G", 1 << 30)):
        options = {**BASE, "maxBytesPerTrigger": text}
        assert read_options(options, streaming=True).max_bytes == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7 milliseconds", 0.007),
        ("1 second", 1),
        ("2minutes", 120),
        ("1 Hour", 3600),
        ("2 d", 172800),
    ],
)
def test_units_of_a_time_may_be_written_out(text: str, seconds: float) -> None:
    """As Spark has them in a watermark."""
    assert quantity_of_seconds("delay", text) == seconds


@pytest.mark.parametrize("text", ["2 months", "minutes", "0 s", "5", "1 hour 5 minutes"])
def test_times_that_are_none(text: str) -> None:
    """They are told as they were given, with the units that there are."""
    with pytest.raises(InvalidArgument, match=f"'{text}'; give a number from 1 on.* ms, s, m, min"):
        quantity_of_seconds("delay", text)


def test_a_pattern_leaves_the_queues_to_the_store() -> None:
    """They are looked for when the read is planned."""
    read = read_options({"path": "/s", "subscribePattern": "orders-.*"}, streaming=True)
    assert (read.queues, read.pattern) == ((), "orders-.*")


def test_the_page_on_spark_lists_the_options() -> None:
    """Word for word what the module says of them."""
    listed = (options_module.__doc__ or "").partition("Everywhere\n")[2]
    page = (ROOT / "docs" / "spark.md").read_text()
    assert "Everywhere\n" + listed.rstrip() + "\n```" in page
    for name in options_module.KNOWN:
        assert name in listed or name in ("queryName", "checkpointLocation"), name


def test_a_view_is_read_and_written_with_one_set_of_options() -> None:
    """CREATE TEMPORARY VIEW ... USING quire has one set for SELECT and INSERT: those of writes."""
    options = {**BASE, "txnAppId": "a", "txnVersion": "3"}
    assert read_options(options, streaming=False).queues == ("orders",)
    assert write_options(options, streaming=False).version == 3


@pytest.mark.parametrize(
    "name", [name for name, sides in options_module.KNOWN.items() if Side.BATCH_WRITE not in sides]
)
def test_a_write_refuses_the_options_of_reads(name: str) -> None:
    """By their names, in a batch as in a stream."""
    for streaming in (False, True):
        if streaming and Side.STREAM_WRITE in options_module.KNOWN[name]:
            continue
        with pytest.raises(InvalidArgument, match=f"option '{name}' belongs to"):
            write_options({"path": "/s", name: "1"}, streaming=streaming)


@pytest.mark.parametrize(
    ("name", "wrong"), [("startingOffsets", "latest"), ("endingOffsets", "earliest")]
)
def test_a_batch_read_begins_before_its_end(name: str, wrong: str) -> None:
    """As with Kafka's connector; a stream may begin at the end, and a time goes before."""
    number = {"latest": -1, "earliest": -2}[wrong]
    for value in (wrong, wrong.upper(), f'{{"orders": {number}}}'):
        with pytest.raises(InvalidArgument, match=f"option '{name}' is {wrong}.*has no rows then"):
            read_options({**BASE, name: value}, streaming=False)
    if name == "startingOffsets":
        stream = {**BASE, "subscription": "s", name: wrong}
        assert read_options(stream, streaming=True).starting == number
        timed = {**BASE, name: wrong, "startingTimestamp": "5"}
        assert read_options(timed, streaming=False).starting != number


def test_files_are_compressed_where_that_is_asked_for() -> None:
    """Not by default; names are case-insensitive as in Spark's own sinks."""
    assert write_options(BASE, streaming=False).codec is Compression.NONE
    for name, codec in (
        ("ZSTD", Compression.ZSTD),
        ("lz4", Compression.LZ4),
        ("none", Compression.NONE),
    ):
        for streaming in (True, False):
            options = {"path": "/s", "compression": name}
            assert write_options(options, streaming=streaming).codec is codec


def test_spark_adds_two_options_to_a_streaming_sink() -> None:
    """The query's name and checkpoint are no unknown options."""
    options = {"path": "/s", "queryname": "n", "checkpointlocation": "/c"}
    assert write_options(options, streaming=True).queue is None

"""A checkpoint's files survive a power failure, once the source has made them durable."""

from __future__ import annotations

import pytest

from quire.errors import InvalidArgument
from quire.spark_graphs.checkpoint.checkpoint_files import CheckpointFiles
from quire.testing import SimEnv

CHECKPOINT = "/data/checkpoint"
LOGS = ("offsets", "commits")


def write(env: SimEnv, path: str, text: bytes) -> None:
    """As Spark does: under another name first, with a checksum beside it, without any sync."""
    directory, _, name = path.rpartition("/")
    for final, content in ((path, text), (f"{directory}/.{name}.crc", b"crc")):
        env.open_file(f"{final}.tmp", create=True).write(0, content)
        env.rename(f"{final}.tmp", final)


def query(env: SimEnv) -> None:
    """A checkpoint of a query that has just started."""
    for directory in ("/data", CHECKPOINT, *(f"{CHECKPOINT}/{log}" for log in LOGS)):
        env.make_directory(directory)
    write(env, f"{CHECKPOINT}/metadata", b"the query's id")


def log(env: SimEnv, batch: int) -> None:
    """A micro-batch that was planned and committed."""
    for name in LOGS:
        write(env, f"{CHECKPOINT}/{name}/{batch}", b"%s %d" % (name.encode(), batch))


def logged(env: SimEnv, name: str) -> list[int]:
    """The micro-batches whose entries are whole."""
    directory = f"{CHECKPOINT}/{name}"
    if not env.exists(directory):
        return []
    return sorted(
        int(entry)
        for entry in env.list_directory(directory)
        if entry.isdigit()
        and env.contents(f"{directory}/{entry}") == b"%s %s" % (name.encode(), entry.encode())
        and env.exists(f"{directory}/.{entry}.crc")
        and env.contents(f"{directory}/.{entry}.crc") == b"crc"
    )


@pytest.mark.crash
def test_what_was_logged_survives(seed: int) -> None:
    """After `sync` the last entry and the one before it are there; without, none needs to be."""
    env = SimEnv(seed=seed)
    query(env)
    files = CheckpointFiles(f"file://{CHECKPOINT}", env)
    for batch in range(5):
        log(env, batch)
        if batch in (1, 2):
            files.sync()
        for fate in range(5):
            after = env.if_it_crashed(seed=fate)
            for name in LOGS:
                assert set(logged(after, name)) >= {1: {0, 1}, 2: {0, 1, 2}}.get(
                    min(batch, 2), set()
                )
            if batch >= 1:
                assert after.contents(f"{CHECKPOINT}/metadata") == b"the query's id"
    lost = env.crash(outcome="lost")
    assert logged(lost, "commits") == [0, 1, 2]


@pytest.mark.crash
def test_an_entry_is_synced_once(seed: int) -> None:
    """A log that did not grow costs no sync, and old entries cost none either."""
    env = SimEnv(seed=seed)
    query(env)
    for batch in range(100):
        log(env, batch)
    files = CheckpointFiles(CHECKPOINT, env)
    files.sync()
    calls = env.calls.last_number
    files.sync()
    assert env.calls.last_number == calls
    log(env, 100)
    files.sync()
    assert logged(env.crash(outcome="lost"), "commits") == [98, 99, 100]


@pytest.mark.parametrize(
    ("location", "advice"),
    [("checkpoint", "must be absolute"), ("/elsewhere", "no query has its checkpoint")],
)
def test_a_wrong_location_is_refused(location: str, advice: str) -> None:
    """Before anything is taken for durable."""
    env = SimEnv()
    query(env)
    with pytest.raises(InvalidArgument, match=advice):
        CheckpointFiles(location, env).sync()


def test_a_location_elsewhere_is_not_looked_at() -> None:
    """It is for that file system to keep what it was given."""
    for location in ("hdfs://host:8020/checkpoint", "s3a://bucket/checkpoint"):
        CheckpointFiles(location, SimEnv()).sync()

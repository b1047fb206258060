"""The metrics of a store: one table of names, kinds, help texts and where in `status` each stands.

A name ends with its unit (`_bytes`, `_seconds`), and a counter's with `_total`. Labels with values
that grow with the store (queue, subscription, user) are folded by the collector before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

StatusValues = Mapping[str, Any]
"""Numbers of a store, or of a part of it, as `status` has them."""
Samples = Iterable[tuple[tuple[str, ...], float]]
"""The labels' values, and the number."""
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Family(NamedTuple):
    """A metric: what it is called, and how its numbers are found in a status."""

    name: str
    kind: str
    help: str
    read: Callable[[StatusValues], Samples]  # none where the status does not tell
    labels: tuple[str, ...] = ()


def at(*path: str, scale: float = 1.0) -> Callable[[StatusValues], Samples]:
    """Return what reads the number at a path of a status, if there is one."""

    def read(status: StatusValues) -> Samples:
        found: Any = status
        for name in path:
            if not isinstance(found, Mapping) or found.get(name) is None:
                return
            found = found[name]
        yield (), float(found) * scale

    return read


def has_text(*path: str) -> Callable[[StatusValues], Samples]:
    """Return what reads 1 where there is a text at the path, and 0 where there is none or None."""

    def read(status: StatusValues) -> Samples:
        found: Any = status
        for name in path[:-1]:
            if not isinstance(found, Mapping) or name not in found:
                return
            found = found[name]
        if path[-1] in found:
            yield (), float(bool(found[path[-1]]))

    return read


def each(where: str, labels: tuple[str, ...], number: str) -> Callable[[StatusValues], Samples]:
    """Return what reads a number of each part in a list, such as of each queue."""

    def read(status: StatusValues) -> Samples:
        for part in status.get(where, ()):
            if part.get(number) is not None:
                yield tuple(str(part[label]) for label in labels), float(part[number])

    return read


def _states(where: str, labels: tuple[str, ...]) -> Callable[[StatusValues], Samples]:
    def read(status: StatusValues) -> Samples:
        for part in status.get(where, ()):
            names = tuple(str(part[label]) for label in labels)
            for state, count in part["states"].items():
                yield (*names, state), float(count)

    return read


def _transactions(status: StatusValues) -> Samples:
    for state, name in (("open", "transactions"), ("prepared", "prepared")):
        if name in status:
            yield (state,), float(len(status[name]))


def _oldest_transactions(status: StatusValues) -> Samples:
    for state, name in (("open", "transactions"), ("prepared", "prepared")):
        if name in status:
            ages = [float(info["age_seconds"]) for info in status[name]]
            yield (state,), max(ages, default=0.0)


def _segments(status: StatusValues) -> Samples:
    journal = status.get("journal", {})
    for state, name in (("used", "segments"), ("spare", "spare_segments")):
        if name in journal:
            yield (state,), float(journal[name])


def _marks(status: StatusValues) -> Samples:
    disk = status.get("disk", {})
    for mark in ("warn", "refuse"):
        if disk.get(f"{mark}_below_bytes"):
            yield (mark,), float(disk[f"{mark}_below_bytes"])


def _level(status: StatusValues) -> Samples:
    level = status.get("disk", {}).get("level")
    for name in ("low", "full") if level else ():
        yield (name,), float(level == name or (name, level) == ("low", "full"))


def _uses(number: str) -> Callable[[StatusValues], Samples]:
    def read(status: StatusValues) -> Samples:
        for use in status.get("limit_uses", ()):
            if use.get(number) is not None:
                yield (use["user"], use["limit"]), float(use[number])

    return read


def _uses_in_all(number: str) -> Callable[[StatusValues], Samples]:
    def read(status: StatusValues) -> Samples:
        limits = status.get("sharing", {}).get("limits", {})
        for limit, use in limits.get("in_all", {}).items():
            if use.get(number) is not None:
                yield (limit,), float(use[number])

    return read


_Q: Final = ("queue",)
_S: Final = ("queue", "subscription")
_QUEUE_STATES: Final = (
    "Messages of a queue: of a work queue waiting, in_flight (a transaction has them), delayed "
    "(they come later), spent (they wait to become dead letters); of a topic kept (not every "
    "subscription has read them)"
)

FAMILIES: Final = (
    # The store and its owner
    Family("quire_owner", GAUGE, "1 where this process owns the store", at("is_owner")),
    Family("quire_failed", GAUGE, "1 where a write or sync has failed", at("failed")),
    Family("quire_openings_total", COUNTER,
           "Openings of the store since it was made: one more is a start or a take-over",
           at("opening", "number")),
    Family("quire_opened_timestamp_seconds", GAUGE, "When this owner opened the store",
           at("opening", "time_us", scale=1e-6)),
    Family("quire_recovery_seconds", GAUGE, "Time that this opening took to recover the store",
           at("opening", "recovery_seconds")),
    Family("quire_maintenance_failing", GAUGE, "1 where the store's own work fails",
           has_text("maintenance_error")),
    Family("quire_clients", GAUGE, "Processes that have joined", at("sharing", "clients")),
    Family("quire_connections", GAUGE, "Their connections", at("sharing", "connections")),
    Family("quire_draining", GAUGE, "1 where no transactions are begun any more",
           at("sharing", "draining")),
    # Transactions
    Family("quire_transactions", GAUGE, "Transactions that are open, or prepared and undecided",
           _transactions, ("state",)),
    Family("quire_oldest_transaction_seconds", GAUGE, "Age of the oldest of them",
           _oldest_transactions, ("state",)),
    Family("quire_write_buffer_bytes", GAUGE, "Messages of open transactions in memory",
           at("write_buffer_bytes")),
    # The journal, the data files and checkpoints
    Family("quire_journal_bytes", GAUGE, "Bytes of the journal's files", at("journal", "bytes")),
    Family("quire_journal_segments", GAUGE, "Files of the journal", _segments, ("state",)),
    Family("quire_journal_unsynced_bytes", GAUGE, "Bytes that the next power failure may take",
           at("journal", "unsynced_bytes")),
    Family("quire_journal_since_checkpoint_bytes", GAUGE, "Bytes that a recovery would read",
           at("journal", "since_checkpoint_bytes")),
    Family("quire_data_bytes", GAUGE, "Bytes of the data files", at("data", "bytes")),
    Family("quire_data_free_bytes", GAUGE, "Free bytes in them", at("data", "free_bytes")),
    Family("quire_large_transaction_files", GAUGE, "Files of large transactions",
           at("large_transactions", "files")),
    Family("quire_volatile_bytes", GAUGE, "Messages of volatile queues in memory",
           at("volatile", "bytes")),
    Family("quire_checkpoints_total", COUNTER, "Checkpoints of this opening",
           at("checkpoints", "count")),
    Family("quire_checkpoint_timestamp_seconds", GAUGE,
           "When the last one was made; 0: none in this opening",
           at("checkpoints", "last_us", scale=1e-6)),
    Family("quire_checkpoint_seconds", GAUGE, "Time that the last one took",
           at("checkpoints", "last_seconds")),
    Family("quire_checkpoint_moved_bytes_total", COUNTER,
           "Bytes that checkpoints moved from the journal to data files",
           at("checkpoints", "moved_bytes")),
    # The disk
    Family("quire_disk_free_bytes", GAUGE, "Free bytes of the file system",
           at("disk", "free_bytes")),
    Family("quire_disk_mark_bytes", GAUGE, "Free bytes below which is warned, or puts are refused",
           _marks, ("mark",)),
    Family("quire_disk_below_mark", GAUGE, "1 where there are fewer: low, and full",
           _level, ("level",)),
    Family("quire_kept_back_whole", GAUGE,
           "1 where all of the space is there that a full disk is drained with",
           at("kept_back", "whole")),
    # The archive
    Family("quire_archive_lag_seconds", GAUGE, "Age of the oldest record that is not shipped",
           at("archive", "lag_seconds")),
    Family("quire_archive_lag_records", GAUGE, "Records that are not shipped",
           at("archive", "lag_records")),
    Family("quire_archive_lag_bytes", GAUGE, "Bytes of the journal that are not shipped",
           at("archive", "lag_bytes")),
    Family("quire_archive_held_bytes", GAUGE, "Released bytes that wait for the archive",
           at("archive", "held_bytes")),
    Family("quire_archive_failing", GAUGE, "1 where nothing can be shipped: status says why",
           has_text("archive", "error")),
    Family("quire_archive_gap", GAUGE, "1 where records were let go of unshipped",
           has_text("archive", "gap_since")),
    Family("quire_archive_puts_wait", GAUGE, "1 where puts wait for the archive",
           at("archive", "puts_wait")),
    # Queues
    Family("quire_queue_messages", GAUGE, _QUEUE_STATES, _states("queues", _Q), (*_Q, "state")),
    Family("quire_queue_used_bytes", GAUGE, "Bytes that count against the capacity",
           each("queues", _Q, "used_bytes"), _Q),
    Family("quire_queue_capacity_bytes", GAUGE, "The capacity",
           each("queues", _Q, "capacity_bytes"), _Q),
    Family("quire_queue_open_transactions", GAUGE, "Open transactions that have put to the queue",
           each("queues", _Q, "open_transactions"), _Q),
    Family("quire_queue_put_messages_total", COUNTER, "Messages that were committed to the queue",
           each("queues", _Q, "put_messages"), _Q),
    Family("quire_queue_read_messages_total", COUNTER,
           "Messages of a work queue that were read, or have gone otherwise",
           each("queues", _Q, "read_messages"), _Q),
    Family("quire_queue_dropped_messages_total", COUNTER, "Messages that gave way to later ones",
           each("queues", _Q, "dropped"), _Q),
    # Subscriptions of topics
    Family("quire_subscription_messages", GAUGE,
           "Messages that a subscription has not read, by state as of a work queue",
           _states("subscriptions", _S), (*_S, "state")),
    Family("quire_subscription_read_messages_total", COUNTER,
           "Messages that it has read; a seek moves this back or forth",
           each("subscriptions", _S, "read_messages"), _S),
    Family("quire_folded", GAUGE, "Queues, subscriptions and users that share the label (other)",
           each("folded", ("label",), "count"), ("label",)),
    # Limits of a served store
    Family("quire_user_limit_used", GAUGE, "What a user has in use of a limit", _uses("used"),
           ("user", "limit")),
    Family("quire_user_limit", GAUGE, "The limit of a user", _uses("of"), ("user", "limit")),
    Family("quire_user_limit_refused_total", COUNTER, "What was refused for it", _uses("refused"),
           ("user", "limit")),
    Family("quire_limit_used", GAUGE, "What all clients together have in use of a limit",
           _uses_in_all("used"), ("limit",)),
    Family("quire_limit", GAUGE, "The limit of all clients", _uses_in_all("limit"), ("limit",)),
    Family("quire_limit_refused_total", COUNTER, "What was refused to clients for it",
           _uses_in_all("refused"), ("limit",)),
)  # fmt: skip


class HistogramFamily(NamedTuple):
    """A metric of counts by powers of two."""

    name: str
    help: str
    counts: tuple[str, ...]  # where in a status
    sum: tuple[str, ...]
    scale: float  # of the first bound, which is 1
    first: int = 0  # counts below it are one


HISTOGRAMS: Final = (
    HistogramFamily(
        "quire_group_commits",
        "Commits that were written and synced together",
        ("groups_by_size",),
        ("commits",),
        1.0,
    ),
    HistogramFamily(
        "quire_commit_seconds",
        "Time of one commit in 16 until it is durable, of a store that has timings",
        ("times", "commit", "counts"),
        ("times", "commit", "seconds"),
        1e-6,
        4,
    ),
    HistogramFamily(
        "quire_sync_seconds",
        "Time of one write or sync in 16 that makes commits durable, of a store that has timings",
        ("times", "sync", "counts"),
        ("times", "sync", "seconds"),
        1e-6,
        4,
    ),
)

"""A keyed state of a store: `quire.keyed.open_state`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from inspect import iscoroutinefunction
from itertools import pairwise
from typing import Any, Final, TypeVar

from quire.definitions.row_schema import check_grows, is_part
from quire.env import Env, OsEnv
from quire.errors import InvalidArgument, QueueInUse, QueueNotFound, StateConflict
from quire.interface.transaction import Transaction
from quire.libraries import pa
from quire.limits import DEFAULT_LEASE_SECONDS, MAX_CAPACITY_BYTES
from quire.moments import Duration

from .fragment_files import FragmentFiles
from .key_hash import hashes_of
from .keyed_changes import KeyedChanges
from .keyed_check import findings_of
from .keyed_merges import KeyedMerges
from .keyed_reader import KeyedReader, KeyedStore
from .keyed_status import KeyedStatus
from .manifest import (
    DEFINITION,
    FIRED,
    PREFIX,
    PUT_BYTES,
    VERSION,
    KeyedDefinition,
    KeyedManifest,
    RunEntry,
    version_of,
)
from .row_arguments import check_keyed_name, definition_of, keys_of
from .row_layout import layout_by
from .run_files import RunGone, ltds_directory
from .run_merge import deepest, living, merged_rows
from .run_output import WrittenRun
from .state_look import StateLook
from .timer_mark import TimerMark

Opened = TypeVar("Opened")


class KeyedState:
    """Rows by key, of any size: made by `open_state`, and used by any thread.

        totals = keyed.open_state(store, "totals", "customer", "customer string, total bigint")
        with store.transaction() as txn:
            order = txn.get("orders")
            with totals.within(txn) as rows:
                before = rows.get(["Ada"])
                rows.put([{"customer": "Ada", "total": 7}])

    The rows, the messages and the positions of a transaction are one commit.
    """

    def __init__(
        self,
        store: KeyedStore,
        name: str,
        env: Env | None = None,
        files: FragmentFiles | None = None,
    ) -> None:
        self._store = store
        self._reader: Final = KeyedReader(store, name, env or OsEnv(), files)
        self._merges: Final = KeyedMerges(store, self._reader)

    def __repr__(self) -> str:
        return f"<KeyedState {self.name}>"

    @property
    def name(self) -> str:
        """Its name."""
        return self._reader.name

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows, those of the key first."""
        return layout_by(self._reader.manifest()).shown

    @property
    def key_names(self) -> list[str]:
        """The columns of the key."""
        return list(layout_by(self._reader.manifest()).key_names)

    # Looking

    def get(self, keys: Any) -> pa.RecordBatch:
        """Return the rows of these keys that there are, as they are committed, in their order.

        `keys` as for `KeyedChanges.get`. Raises InvalidArgument, NotFound, StoreCorrupt.
        """
        manifest = self._reader.manifest()
        columns = keys_of(self.name, layout_by(manifest), keys)
        hashes = hashes_of(columns)
        look = self._reader.look
        return look(manifest, lambda rows: rows.find(columns, hashes), is_latest=True)[0]

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, as they are at one moment, in the order of their keys' hashes.

        Some 4 MiB of them are in memory at a time. A lease keeps the runs in place meanwhile.
        Raises NotFound, StoreCorrupt, PositionLost.
        """
        renew = self._store.integration.renew_lease
        manifest, runs, lease_id = self._lease(self._reader.opened, DEFAULT_LEASE_SECONDS)
        try:
            layout, now_us = layout_by(manifest), self._reader.env.now_us()
            for rows in merged_rows(manifest, manifest.runs, runs, layout):
                renew(lease_id)
                yield layout.shown_rows(living(rows, now_us).batch)
        finally:
            self._store.integration.end_lease(lease_id)

    def look(self, seconds: Duration = DEFAULT_LEASE_SECONDS) -> StateLook:
        """Return the state as it is now, for tasks in other processes, and keep its runs in place.

        See `StateLook`. Where there are too many runs some are merged before, as by `within`. The
        lease of the look lasts for `seconds`, or until `store.integration.renew_lease(
        look.lease_id)` says longer; end it with `end_look`. Raises NotFound, StoreCorrupt.
        """
        self._merges.merge_due()
        manifest, payloads, lease_id = self._lease(self._reader.files.payloads, seconds)
        return StateLook(
            self.name, self._store.integration.store_id, manifest, payloads,
            self._reader.env.now_us(), lease_id,
        )  # fmt: skip

    def end_look(self, look: StateLook) -> None:
        """Let go of the runs that a look has kept in place; nothing happens the second time."""
        self._store.integration.end_lease(look.lease_id)

    def _lease(
        self, opened: Callable[[Sequence[RunEntry]], Opened], seconds: Duration
    ) -> tuple[KeyedManifest, Opened, int]:
        """Return a manifest whose runs stay for so long, what they opened as, and the lease."""
        integration, queue = self._store.integration, self._reader.files.queue
        manifest = self._reader.manifest()
        while True:
            end = integration.positions(queue)[1]
            lease_id = integration.lease(queue, 0, end, seconds, gaps=True).lease_id
            try:
                leased = self._reader.manifest()
                if leased.runs == manifest.runs:  # all of them are below the end
                    return leased, opened(leased.runs), lease_id
                manifest = leased
            except RunGone as error:
                integration.end_lease(lease_id)
                manifest = self._reader.check_gone(manifest.runs, error)
                continue
            except BaseException:
                integration.end_lease(lease_id)
                raise
            integration.end_lease(lease_id)

    def runs(self) -> Sequence[RunEntry]:
        """Return the runs that it consists of, the newest first."""
        return self._reader.manifest().runs

    def status(self) -> KeyedStatus:
        """Return its size, its runs, and what was written for it."""
        manifest = self._reader.manifest()
        runs = manifest.runs
        return KeyedStatus(
            self.name, manifest.version, sum(run.rows - run.deleted for run in runs),
            sum(run.kept for run in runs), len(runs), deepest(runs)[0], manifest.put_bytes,
            manifest.merged_bytes,
        )  # fmt: skip

    def verify(self) -> list[str]:
        """Read all of its runs, and return what is missing or damaged, each with its name.

        `store.admin.verify` reads their bytes, too, and knows nothing of what they are: it does not
        miss one that somebody else has taken. Raises NotFound.
        """
        return findings_of(self._reader)

    # Changing

    def within(self, txn: Transaction) -> KeyedChanges:
        """Return the rows as a part of a transaction, which reads and changes them.

        One `with` block of a state in a transaction. Raises StateConflict, NotFound.
        """
        _check_transaction(txn)
        self._merges.merge_due()
        return KeyedChanges(self._reader, txn)

    def adopt(
        self,
        txn: Transaction,
        look: StateLook,
        written: Iterable[WrittenRun],
        fired: TimerMark | None = None,
    ) -> None:
        """Make what tasks have written for a look a part of the state, with the commit.

        Once in a transaction, and not beside a `within` block of the state. `written`: at most one
        run of a range; with none of them the state stays as it is. `fired`: the look's `due_mark`,
        where the timers up to it were dealt with: they are not due again.

        Raises StateConflict where the state has changed since the look; the commit does where it
        changes until then. Then roll back, remove the files (`FragmentFiles.remove`, those of
        `WrittenRun.file` that are not 0), and begin anew with another look. Raises what
        `txn.integration.adopt` does for a file that is missing or damaged, InvalidArgument for runs
        of the same keys.
        """
        runs, values = sorted(written, key=lambda run: run.first), self._reader.values
        for run, after in pairwise(runs):
            if after.first <= run.last:
                raise InvalidArgument(
                    f"keyed state {self.name!r}: two runs were written for the same range of keys: "
                    "adopt one of a range, as one attempt of its task has written it"
                )
        if version_of(txn.get_value(values, VERSION)) != look.version:
            raise StateConflict(
                f"keyed state {self.name!r} was changed since the look, of version {look.version}: "
                "roll back, and begin anew with another look"
            )
        if runs or fired is not None:
            txn.set_value(values, VERSION, b"%d" % (look.version + 1))
        if fired is not None:
            txn.set_value(values, FIRED, look.manifest.fired_value(fired))
        if runs:
            size = look.manifest.put_bytes + sum(run.size for run in runs)
            txn.set_value(values, PUT_BYTES, b"%d" % size)
        for run in runs:
            self._reader.files.put(txn, run, look.version + 1, look.version + 1)

    def merge(self, *, all: bool = False) -> bool:
        """Merge the newest runs where there are several, or all; whether any were.

        Rows stay as they are; those that are deleted or expired take no space after a merge of all.
        `within` merges where there are too many runs, and `keyed.merging` beside it, in a thread.
        Large runs are merged range by range, one with each call until there is nothing to merge.
        """
        return self._merges.merge_all() if all else self._merges.merge_some()

    def merge_ahead(self, give_up: Callable[[], bool]) -> bool:
        """Merge runs in one range where `within` would soon have to; False: not now.

        `give_up`: called every few MiB; once it returns True the merge ends, with no change.
        """
        return self._merges.merge_ahead(give_up)

    def position(self) -> int:
        """Return how many runs changes and merges have put so far. Raises QueueNotFound."""
        return self._store.integration.positions(self._reader.files.queue)[1]

    def when_changed(self, position: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once there are changes or merges behind a `position()`.

        It is called as `store.integration.when_ready` says, and the result withdraws it, too.
        """
        source = f"{self._reader.files.queue}@{position}"
        return self._store.integration.when_ready(source, callback)

    def drop(self) -> None:
        """Remove the state with all its rows. Raises NotFound, QueueInUse, KeyHeld."""
        name, queue = self._reader.files.queue, None
        with suppress(QueueNotFound):
            queue = self._store.queue(name)
        if queue is None:
            self._reader.manifest()  # there are its values, if anything
        elif queue.open_transactions:
            raise QueueInUse(
                f"{queue.open_transactions} open transactions change keyed state {self.name!r}, or "
                "merge it: end them first (store.admin.transactions() lists them)"
            )
        self._store.states.drop(self._reader.values)
        if queue is not None:
            self._store.drop_queue(name)

    def clear(self, txn: Transaction) -> None:
        """Delete all rows, with the transaction's commit; the state stays.

        Once in a transaction, and not beside a `within` block of the state. Raises StateConflict,
        as does the commit where the state has changed meanwhile, and NotFound.
        """
        _check_transaction(txn)
        values = self._reader.values
        version = version_of(txn.get_value(values, VERSION))
        manifest = self._reader.manifest()
        if manifest.version != version:
            raise StateConflict(f"keyed state {self.name!r} was changed meanwhile: begin again")
        try:
            self._merges.take(txn, manifest.runs)
        except RunGone as error:
            self._reader.check_gone(manifest.runs, error)
            raise StateConflict(f"keyed state {self.name!r} was merged: begin again") from error
        txn.set_value(values, VERSION, b"%d" % (version + 1))


def open_state(
    store: KeyedStore,
    name: str,
    key: str | Sequence[str] | None = None,
    schema: object = None,
    ttl: Duration | None = None,
    env: Env | None = None,
    files: FragmentFiles | None = None,
) -> KeyedState:
    """Open a keyed state of a store: rows by key, which transactions read and change.

    It is made where there is none, durably. `name`: as for a queue, up to 180 characters.
    `schema`: its columns, as for a typed queue, none of them nested; nullable ones may be added
    behind them, by opening it with these. `key`: the first of the columns, one or several: strings,
    binary, whole numbers, booleans, dates, timestamps. With neither it has to be there already.
    `ttl`: seconds after which a row is gone by itself, unless its put says otherwise; None: it
    stays, or what an earlier opening said. `env`: the one that the store was opened with, if it is
    not the machine's own.

    Who opens it has to see the store's files, or to give `files`, another way to them. Raises
    NotFound, InvalidArgument.
    """
    check_keyed_name(name)
    _check_store(store, name)
    if files is None:
        _check_files(store, env or OsEnv())
    state = KeyedState(store, name, env, files)
    if key is None and schema is None:
        state.runs()  # it is there
        return state
    if key is None:
        raise InvalidArgument(f"keyed state {name!r}: say which columns of the schema are the key")
    if schema is None:
        raise InvalidArgument(f"keyed state {name!r}: say its schema, of which the key is a part")
    wanted = definition_of(name, key, schema, ttl)
    store.create_queue(
        PREFIX + name, capacity=MAX_CAPACITY_BYTES, indexed=["correlation_id"], exist_ok=True
    )
    while True:
        with suppress(StateConflict):  # somebody else opens it, too
            _define(store, name, wanted, env or OsEnv())
            return state


def _check_transaction(txn: object) -> None:
    if not hasattr(txn, "get_value"):
        raise InvalidArgument(
            f"txn {txn!r:.100}: give the transaction that the changes are a part of"
        )


def _check_store(store: KeyedStore, name: str) -> None:
    if not hasattr(store, "create_queue"):
        raise InvalidArgument(f"store {store!r:.100}: give the store that quire.open returns")
    if iscoroutinefunction(store.create_queue):
        raise InvalidArgument(
            f"keyed state {name!r}: there is no form for asyncio yet: open it with a store of "
            "quire.open, and call it in a thread (asyncio.to_thread)"
        )


def _check_files(store: KeyedStore, env: Env) -> None:
    if not env.exists(ltds_directory(store.path)):
        raise InvalidArgument(
            f"there are no files of the store {store.path} that this process sees: a keyed state "
            "is read from them, so open it on a machine that has the store's directory (and with "
            "the env of the store, if it has one)"
        )


def _define(store: KeyedStore, name: str, wanted: KeyedDefinition, env: Env) -> None:
    with store.transaction() as txn:
        value = txn.get_value(PREFIX + name, DEFINITION)
        if value is not None:
            found = KeyedManifest.of(name, {DEFINITION: value})
            assert found is not None
            wanted = _grown(name, found.definition, wanted)
            if found.definition == wanted:
                return
        else:  # what is in the queue, one that was dropped half way has left
            while txn.get_many(PREFIX + name):
                pass
            # Not that of an earlier state of the name: who has begun to change it is refused.
            first = env.random_u64() >> 32
            txn.set_value(PREFIX + name, VERSION, b"%d" % first)
        txn.set_value(PREFIX + name, DEFINITION, wanted.value())


def _grown(name: str, before: KeyedDefinition, wanted: KeyedDefinition) -> KeyedDefinition:
    """Return what the state is from now on. Raises InvalidArgument for what it cannot become."""
    if before.key != wanted.key:
        raise InvalidArgument(
            f"keyed state {name!r} has a key of {before.key} columns, not {wanted.key}: the key "
            "stays; make another state, and put the rows there"
        )
    schema = before.schema
    if not is_part(wanted.schema, schema):  # else another program has added columns
        check_grows(PREFIX + name, schema, wanted.schema)
        schema = wanted.schema
    ttl_us = before.ttl_us if wanted.ttl_us is None else wanted.ttl_us
    return KeyedDefinition(schema, before.key, ttl_us)

"""The files of an open store: created, or recovered.

- OD1: creation is crash-safe: until the first checkpoint has its name the directory holds no store,
  and the next opening begins the creation anew; what it replaces there never held a record. The
  directories that it finds are made anew: a name whose sync failed may never become durable. The
  store's own name is durable before anything is in it, and is taken back where its sync fails.
- OD3: recovery builds on nothing that may be gone after a power failure although it can be read:
  what a failed write or sync left, or a process that died before its sync. Of what it finds
  - the journal's last group is written again (`quire.journal.recovery`, JV2), with the ready and
    spare segments' names (JV3); the groups before it are durable by JV2 too;
  - the newest checkpoint is written again where its name is uncertain (`checkpoint_file`, K6),
    before data files are cut or grown as it says, before any page it frees is written, and before
    an older one is removed;
  - pages and files of large transactions that a COMMIT, a PREPARE or a checkpoint names were
    synced, and the files' names too, before its own write began, by calls that returned without
    an error; one that fails refuses all commits and checkpoints of that process, those of other
    threads included (`data_file` D4, `places` P7, `sequencer` C7). So what names them proves them;
  - a removed file that must not come back, because it could be adopted anew, is removed again
    where its name is not there any more (`discarded`, DI5);
  - leases, addresses and locks end with their process: nothing is built on them.
- OD4: a store whose directory, or LOCK, was removed, moved or replaced while it is open changes
  nothing from then on, in a file or by name: what is at its path now may be another store, with an
  owner of its own. It is looked at before each round of work that does more than write a group (a
  checkpoint, a step of the maintenance, a new segment, the close), and the store fails.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from quire.engine.commits import call_times
from quire.engine.layout import KNOWN_NAMES, Layout, no_store
from quire.engine.live_state.engine_state import EngineState
from quire.engine.options import FIXED, Options, check_fixed
from quire.engine.ownership import Ownership
from quire.engine.pages.block_places import Places
from quire.engine.pages.data_files import open_data_files
from quire.engine.pages.free_space import FreeSpace
from quire.engine.pages.unshipped_places import ShippedPosition
from quire.engine.reading.block_reader import BlockReader
from quire.engine.records.checkpoint_file import (
    list_checkpoints,
    read_checkpoint,
    remove_older,
    settle,
)
from quire.engine.records.checkpoint_spares import keep_spares, spares
from quire.engine.strategies import strategy_named
from quire.env import Env, FileLock
from quire.errors import (
    InvalidArgument,
    QuireError,
    ResourceExhausted,
    StoreCorrupt,
    StoreFailed,
)
from quire.journal import Hooks, Journal
from quire.limits import KEPT_BACK_SEGMENTS
from quire.loggers import logger

from .recovery import RecoveredRecords, new_state, replay, restore, uncollected
from .snapshot import Snapshot
from .spare_space import KeptBack

if TYPE_CHECKING:
    from quire.engine.commits.call_times import StoreTimes


class OpenRequest(NamedTuple):
    """The arguments of an opening."""

    options: Options
    explicit: set[str]  # those that are not by default
    create: bool
    background: bool
    owner: str


class Opened(Struct, frozen=True):
    """Everything that stands on the store's files."""

    env: Env
    layout: Layout
    options: Options
    settings: dict[str, int]
    store_id: int
    ownership: Ownership
    journal: Journal
    state: EngineState
    places: Places
    reader: BlockReader
    kept_back: KeptBack
    checkpoint_lsn: int
    recovered: RecoveredRecords
    times: StoreTimes | None
    opened_us: int
    recovery_seconds: float

    def check_place(self) -> None:
        """Raises StoreFailed where the store is not this process's any more (OD4)."""
        try:
            self.ownership.check()
        except StoreFailed as lost:
            self.journal.give_up(lost)
            raise

    def close(self) -> None:
        with ExitStack() as closing:  # from the last to the first, whatever one raises
            closing.callback(self.journal.close)
            closing.callback(self.places.data.close)
            closing.callback(self.places.stop)
            closing.callback(self.places.cache.close)


_log = logger("quire.recovery")

_PATH_ERRORS: Final = (errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


@contextmanager
def errors_of_path(layout: Layout) -> Iterator[None]:
    """Turn errors of the system about the store's directory into errors of Quire."""
    try:
        yield
    except QuireError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidArgument(
            f"path {layout.path!r}: the directory that it is to be made in is not there: "
            "make that first"
        ) from None
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno not in _PATH_ERRORS:
            raise not_opened(layout, error) from error
        raise InvalidArgument(f"path {layout.path!r} cannot be a store's: {error}") from None


def not_opened(layout: Layout, error: OSError) -> StoreFailed:
    """Return the error of a store that cannot be opened, with what to do about it."""
    advice = {
        errno.EACCES: "; a store is its user's alone: run this as that user, and give it what "
        "another one has made there (chown -R)",
        errno.EBUSY: "; a disk is mounted there: give a path below it",
        errno.EMFILE: "; close some, or let the process have more (ulimit -n)",
        errno.EROFS: "; copy the store to where it can be written, or read it by `quire dump`",
    }.get(error.errno or 0, "")
    return StoreFailed(f"the store at {layout.path} cannot be opened: {error}{advice}")


def prepare_directory(env: Env, layout: Layout, create: bool) -> None:
    """Make sure that the path can be a store's, and its name durable (OD1).

    Raises `StoreNotFound`, `InvalidArgument`, `StoreFailed`.
    """
    if not env.exists(layout.path):
        if not create:
            with suppress(FileNotFoundError, NotADirectoryError):
                env.list_directory(layout.path)  # which says whether it may be seen at all
            raise no_store(layout)
        try:
            env.make_directory(layout.path)
        except FileExistsError:
            raise InvalidArgument(
                f"{layout.path} is a link to a directory that is not there: make that, or give "
                "another path"
            ) from None
        except PermissionError as error:
            raise StoreFailed(
                f"no store can be made at {layout.path}: {error}; name a path in a directory of "
                "this user, or have this one made and given to it (chown); a store that is there "
                "is its user's alone: run this as that user"
            ) from None
        _make_durable(env, layout, is_new=True)
        return
    try:
        names = set(env.list_directory(layout.path))
    except NotADirectoryError:
        raise InvalidArgument(f"{layout.path} is a file: give a directory") from None
    if "checkpoint" not in names:
        if not create:
            raise no_store(layout)
        foreign = sorted(names - KNOWN_NAMES)
        if foreign:
            raise InvalidArgument(
                f"{layout.path} holds other things ({foreign[0]!r}): give a new or empty directory"
            )
        _make_durable(env, layout, is_new=False)


def _make_durable(env: Env, layout: Layout, *, is_new: bool) -> None:
    """The store's own name. One that was made just now is taken back where that fails."""
    try:
        env.sync_directory(layout.parent)
    except OSError as error:
        advice = "remove this directory, and open it again"
        if is_new:
            with suppress(OSError):
                env.remove(layout.path)
                advice = "it was removed again: open it once more"
        raise StoreFailed(
            f"{layout.path}: it is not known whether its name is durable ({error!r}); {advice}"
        ) from error


def open_files(env: Env, layout: Layout, lock: FileLock, request: OpenRequest) -> Opened:
    """Recover the store, or create it, under its lock; what guards it is held from then on."""
    ownership = Ownership(env, layout, lock)
    try:
        ownership.guard_all()
        return _open(ownership, layout, request)
    except BaseException:
        ownership.let_go()
        raise


def _open(ownership: Ownership, layout: Layout, request: OpenRequest) -> Opened:
    env = ownership.env
    lsns = list_checkpoints(env, layout.checkpoints) if env.exists(layout.checkpoints) else []
    if not lsns:
        if not request.create:
            raise no_store(layout)
        create_files(ownership, layout, request.options)
        ownership.guard_all()
        lsns = list_checkpoints(env, layout.checkpoints)
    return _recover(ownership, layout, request, lsns[-1])


def create_files(
    ownership: Ownership,
    layout: Layout,
    options: Options,
    store_id: int | None = None,
    generation: int = 0,
) -> None:
    """Make an empty store; its first checkpoint comes last (OD1).

    `store_id`: None: a new one. `generation`: its journal's generations come after this one.
    """
    env = ownership.env
    ownership.let_go()  # of what a creation that was broken off left: it is made anew
    if env.exists(layout.checkpoints):
        remove_older(env, layout.checkpoints, 0)
    for directory in (layout.checkpoints, layout.ltds, layout.run):
        _make_anew(env, directory)
    store_id = env.random_u64() if store_id is None else store_id
    try:
        journal = Journal.create(
            env,
            layout.journal,
            store_id=store_id,
            segment_bytes=options.segment_bytes,
            page_size=options.page_size,
            kept_back=KEPT_BACK_SEGMENTS,
            direct=True,
            generation=generation,
        )
    except InvalidArgument as error:
        if not env.exists(layout.journal) or not env.list_directory(layout.journal):
            raise
        raise StoreCorrupt(
            f"{layout.path}: there is a journal but no checkpoint ({error}); restore the store "
            "from a copy"
        ) from error
    if env.exists(layout.data):
        for name in env.list_directory(layout.data):  # of a creation that was broken off
            env.remove(f"{layout.data}/{name}")
    _make_anew(env, layout.data)
    data = open_data_files(env, layout, options, store_id, create=True)
    for directory in (layout.data, layout.ltds, layout.path):
        env.sync_directory(directory)
    spaces = [FreeSpace(file.pages) for file in data]
    strategy = strategy_named(options.strategy)
    state = new_state(env, layout.ltds, data, spaces, strategy, parallel=False)
    snapshot = Snapshot.of(state, journal.end_lsn, journal.last_lsn, 0)
    settings = {name: getattr(options, name) for name in FIXED} | {"created_us": env.now_us()}
    ownership.check()
    snapshot.write(env, layout, store_id, settings, spaces)
    remove_older(env, layout.checkpoints, journal.end_lsn)
    data.close()
    journal.close()


def _make_anew(env: Env, directory: str) -> None:
    """A directory whose name no failed sync has seen (OD1); one with something in it stays."""
    if env.exists(directory) and not env.list_directory(directory):
        env.remove(directory)
    env.make_directory(directory)


@uncollected()
def _recover(ownership: Ownership, layout: Layout, request: OpenRequest, lsn: int) -> Opened:
    env = ownership.env
    checkpoint = read_checkpoint(env, layout.checkpoints, lsn)
    document = checkpoint.document
    settings = {name: int(document[name]) for name in (*FIXED, "created_us")}
    check_fixed({name: getattr(request.options, name) for name in request.explicit}, settings)
    fixed: dict[str, Any] = {name: settings[name] for name in FIXED}
    options = replace(request.options, **fixed)
    begin, times = env.monotonic(), None
    with ExitStack() as opening:
        data = open_data_files(env, layout, options, checkpoint.store_id)
        opening.callback(data.close)
        strategy = strategy_named(options.strategy)
        state = restore(
            checkpoint,
            lambda spaces: new_state(
                env, layout.ltds, data, spaces, strategy, parallel=request.background
            ),
        )
        places, kept_back = state.places, KeptBack(env, layout.checkpoints, state)

        def admit() -> int:
            ownership.check()
            return kept_back.admit()

        hooks = Hooks(admit, places.hold, places.settle, ownership.go_on_to)
        if options.timings:
            times = call_times.StoreTimes.of(env.monotonic)
            hooks = hooks._replace(timed=times.sync.timed)
        journal, recovered = replay(env, layout.journal, checkpoint, state, hooks)
        opening.callback(journal.close)
        end = ShippedPosition(journal.last_lsn, recovered.number)
        places.resume(end)
        state.coming.count_anew = journal.ask_anew
        state.resume(journal.generation >> 32)  # which is raised at each opening
        ownership.go_on_to(journal.segment_path)
        spare_space = max((size for size, _ in spares(env, layout.checkpoints)), default=0)
        settle(env, layout.checkpoints, checkpoint)
        for manager in places.managers:
            manager.match_file()
        remove_older(env, layout.checkpoints, lsn)
        if spare_space:  # one may have become the checkpoint, in the stead of a file that is gone
            with suppress(ResourceExhausted):
                keep_spares(env, layout.checkpoints, spare_space)
        kept_back.look()
        if recovered.cut:
            _log.warning("%s", recovered.cut)
        opening.pop_all()
    reader = BlockReader(env, journal, places, checkpoint.store_id)
    return Opened(
        env=env, layout=layout, options=options, settings=settings, store_id=checkpoint.store_id,
        ownership=ownership, journal=journal, state=state, places=places, reader=reader,
        kept_back=kept_back, checkpoint_lsn=lsn, recovered=recovered, times=times,
        opened_us=env.now_us(), recovery_seconds=env.monotonic() - begin,
    )  # fmt: skip

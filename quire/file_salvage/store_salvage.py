"""Salvaging a damaged store: what is whole of it, in a new one.

- SX1: not one byte of the damaged store is changed, no lock of it is taken, and nothing is
  recovered there. Whoever owns it must have ended.
- SX2: until all of the new store is durable and verified there is nothing at its path. So a
  salvage that was broken off is begun anew.
- SX3: nothing is in a queue that was not put there, as far as checksums tell; what may have been
  put anywhere is in queues of its own (UP1).
- SX4: a message that cannot be proved to be read is delivered, if need be a second time.
- Memory holds the durable state, the packed records since the checkpoint, and some blocks; without
  a checkpoint the packed records of a queue.
"""

from __future__ import annotations

from contextlib import closing

from quire.engine.built_beside import BuiltStore, built_beside
from quire.engine.layout import Layout, no_store
from quire.env import Env
from quire.errors import InvalidArgument, StoreCorrupt, StoreLocked
from quire.file_dump.items import Finding

from .damaged_store import DamagedStore
from .new_store import NewStore
from .prepared_salvage import PreparedSalvage
from .queue_salvage import QueueSalvage
from .report import LostMessages, PreparedSalvaged, QueueSalvaged, SalvageReport
from .unplaced import UnplacedMessages

SALVAGING = ".salvaging-"


def salvage_store(env: Env, damaged: str, path: str) -> SalvageReport:
    """Make the new store. See `quire.salvage`."""
    source, target = (Layout(env.real_path(Layout(each).path)) for each in (damaged, path))
    _check(env, source, target)
    with (
        built_beside(env, target, SALVAGING, "salvage") as built,
        closing(DamagedStore(env, source)) as store,
    ):
        report = _Salvage(built, store).run(target.path)
        _verify(built)
    return report


def _check(env: Env, source: Layout, target: Layout) -> None:
    try:
        names = set(env.list_directory(source.path))
    except (FileNotFoundError, NotADirectoryError):
        names = set()
    if not {"checkpoint", "journal", "data"} & names:
        raise no_store(source)
    if env.is_locked(source.lock):
        raise StoreLocked(f"a process has the store at {source.path} open: end it first")
    if f"{target.path}/".startswith(f"{source.path}/"):
        raise InvalidArgument(
            f"{target.path} is in the damaged store, which is not to be changed: give another path"
        )


def _verify(built: BuiltStore) -> None:
    """Read all of the new store (SX2)."""
    report = built.verify()
    if not report.ok:
        raise StoreCorrupt(
            f"the store that was salvaged contradicts itself: {report.damage[0]}; report this, "
            "with the output of `quire dump` of the damaged one"
        )


class _Salvage:
    """One salvage."""

    def __init__(self, built: BuiltStore, damaged: DamagedStore) -> None:
        self._built, self._damaged = built, damaged

    def run(self, path: str) -> SalvageReport:
        """Build the new store, durably but for its name."""
        damaged = self._damaged
        for queue_id in damaged.queues_found():
            damaged.history.by_id(queue_id)
        with closing(NewStore(self._built, damaged)) as new:
            salvaged: list[QueueSalvaged] = []
            lost: list[LostMessages] = []
            ends: dict[int, int] = {}
            pages_lost: list[Finding] = []
            records_are_missing = False
            for found in list(damaged.history.queues.values()):
                ends[found.queue_id] = damaged.certain_end(found)
                one = QueueSalvage(damaged, new, found)
                of_queue, its_lost = one.run()
                salvaged.append(of_queue)
                lost += its_lost
                pages_lost += [page.finding for page in one.lost_pages]
                records_are_missing = records_are_missing or bool(one.lost_pages)
            prepared, texts = self._prepared(new, ends)
            unplaced = UnplacedMessages(damaged, new)
            unplaced.search(records_are_missing=records_are_missing)
            salvaged += [
                QueueSalvaged(each.config.name, each.end_position, 0, 0, True)
                for each in unplaced.queues
            ]
            new.finish(texts)
        findings = list(dict.fromkeys([*damaged.findings, *pages_lost]))
        return SalvageReport(path, salvaged, lost, prepared, findings, unplaced.messages)

    def _prepared(
        self, new: NewStore, ends: dict[int, int]
    ) -> tuple[list[PreparedSalvaged], list[str]]:
        done = list(PreparedSalvage(self._damaged, new, ends).run())
        for each, text in done:
            if not text:
                del new.state.prepared[each.xid]
        return [each for each, _ in done], [text for _, text in done if text]

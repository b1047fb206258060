"""The free space of a store's disk, beside two marks that its owner may set.

- FSW1: the maintenance asks for it at its steps: every half second, and whenever a quarter of a
  segment of the journal was written since. A commit never does, and without marks nobody does.
- FSW2: below `warn_below_bytes` the log and `status` warn. Below `refuse_below_bytes` puts get
  `StoreFull`, at once, whatever their queues' overflow says; what was put before is committed, and
  all else goes on: gets, deletes, decisions, values of the state, checkpoints, the archive.
  Volatile queues take puts, as they take no space of the disk. A disk that is full all the same is
  another matter: see docs/full-disk.md.
- A level is left once there is a sixteenth more than its mark, so that a disk whose free space goes
  up and down a little does not fill the log.
- Where the free space is not known, as in memory, nothing is refused.
"""

from __future__ import annotations

from typing import Final

from quire.engine.transactions.context import Context
from quire.limits import FREE_MARGIN_PART, INTERVAL_SECONDS
from quire.loggers import log_warning, logger

_log: Final = logger("quire.disk")
OK, LOW, FULL = "ok", "low", "full"


class DiskWatch:
    """The watch over the free space of one store's disk."""

    def __init__(self, context: Context, path: str) -> None:
        self._context = context
        self._path = path
        options = context.options
        self._full_below: Final = options.refuse_below_bytes
        self._low_below: Final = max(options.warn_below_bytes, options.refuse_below_bytes)
        self._look_at = 0.0  # of the monotonic clock, where no thread looks
        self.level = OK

    def look(self) -> None:
        """Ask for the free space, and do what the marks say (FSW1, FSW2)."""
        free = self._context.env.free_bytes(self._path)
        level = OK if free is None else self._level_of(free)
        if level == self.level:
            return
        if FULL in (level, self.level):
            reason = "" if level != FULL else self._reason(free or 0)
            state = self._context.state
            self._context.sequencer.exclusive(lambda: state.refuse_puts(reason))
        before, self.level = self.level, level
        self._tell(before, free)

    def look_now_and_then(self) -> None:
        """Look where no thread does: after a commit, if the last look is a while ago."""
        now = self._context.env.monotonic()
        if now >= self._look_at:
            self._look_at = now + INTERVAL_SECONDS
            self.look()

    def _level_of(self, free: int) -> str:
        if free < self._mark(self._full_below, is_left=self.level == FULL):
            return FULL
        return LOW if free < self._mark(self._low_below, is_left=self.level != OK) else OK

    def _mark(self, mark: int, *, is_left: bool) -> int:
        """The free space below which a level begins, or ends."""
        return mark + mark // FREE_MARGIN_PART if is_left else mark

    def _reason(self, free: int) -> str:
        return (
            f"the disk of {self._path} has {free} bytes free, and puts are refused below "
            f"refuse_below_bytes={self._full_below}, while gets and all else go on: make room on "
            "the disk, or read, purge or drop what waits in the store; or open it with a lower mark"
        )

    def _tell(self, before: str, free: int | None) -> None:
        if self.level == FULL:
            log_warning(_log, "%s", self._reason(free or 0))
            return
        if self.level == LOW:
            rest = ", and puts go on again" if before == FULL else ""
            log_warning(
                _log,
                "the disk of %s has %s bytes free, less than warn_below_bytes=%d%s: make room",
                self._path, free, self._low_below, rest,
            )  # fmt: skip
            return
        _log.info("the disk of %s has room again: %s bytes are free", self._path, free)

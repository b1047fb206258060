"""A machine with a journal in it, and what the journal was told to keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

from quire.env import Env
from quire.journal import Journal, RecoveryReport, pack_record

PAGE = 4096
SEGMENT = 16 * PAGE
STORE = 0x51F0_0000_0000_0007


class Options(TypedDict):
    store_id: int
    segment_bytes: int
    page_size: int


OPTIONS: Options = {"store_id": STORE, "segment_bytes": SEGMENT, "page_size": PAGE}

Kept = tuple[int, int, bytes]
"""kind, sequence, body"""


@dataclass
class Machine:
    """An environment and a directory for journals in it."""

    env: Env
    root: str
    reports: list[RecoveryReport] = field(default_factory=list)

    @property
    def directory(self) -> str:
        return f"{self.root}/journal"

    def create(self, *, direct: bool = False, max_spares: int = 2) -> Journal:
        return Journal.create(
            self.env, self.directory, direct=direct, max_spares=max_spares, **OPTIONS
        )

    def recover(
        self, *, restart_lsn: int = 0, durable_lsn: int = 0, direct: bool = False
    ) -> tuple[Journal, list[Kept]]:
        """The journal and the records that recovery handed over, in order."""
        kept: list[Kept] = []
        journal = Journal.recover(
            self.env,
            self.directory,
            restart_lsn=restart_lsn,
            durable_lsn=durable_lsn,
            apply=lambda each: kept.append((each.kind, each.sequence, bytes(each.body))),
            report=self.reports.append,
            direct=direct,
            **OPTIONS,
        )
        return journal, kept

    def recovered(self, *, restart_lsn: int = 0, durable_lsn: int = 0) -> list[Kept]:
        journal, kept = self.recover(restart_lsn=restart_lsn, durable_lsn=durable_lsn)
        journal.close()
        return kept

    def path(self, number: int) -> str:
        return f"{self.directory}/{number:016x}.log"

    def peek(self, lsn: int, length: int) -> bytes:
        """Bytes of the journal's files, whatever they mean."""
        file = self.env.open_file(self.path(lsn // SEGMENT), read_only=True)
        data = file.read(lsn % SEGMENT, length)
        file.close()
        return data

    def poke(self, lsn: int, data: bytes) -> None:
        """Damage the journal's files (or undo that)."""
        file = self.env.open_file(self.path(lsn // SEGMENT))
        file.write(lsn % SEGMENT, data)
        file.sync()
        file.close()

    def flip(self, lsn: int) -> None:
        self.poke(lsn, bytes([self.peek(lsn, 1)[0] ^ 0x10]))


def put(journal: Journal, sequence: int, *bodies: bytes) -> int:
    """One group with a record of kind 1 for each body; its first record's address."""
    return journal.write_group([pack_record(1, sequence, body) for body in bodies])

"""Looks whether a store that was killed holds every acknowledged transaction, and nothing half."""

from __future__ import annotations

from collections import Counter
from typing import Any

import quire
from tests.crash.committing import KEY, OPTIONS, TOPICS, WORK, burst, number_of, payload
from tests.kit.violation import Violation

__all__ = ["Audit"]

CHUNK = 10_000


class Audit:
    """Follows one store from kill to kill; each look takes what is new in the topics."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.seen = 0  # the last transaction that an earlier look found

    def look(self, acknowledged: int) -> int:
        """Recover the store and check all of it; the last transaction that it holds."""
        with quire.open(self._path, **OPTIONS) as store:
            last: int = store.integration.ledger(KEY) or 0
            self._check(last >= acknowledged, f"{acknowledged} was acknowledged, {last} is there")
            self._check(last <= max(acknowledged, self.seen) + 1, f"{last} was never committed")
            self._check_topics(store, last)
            self._check_work(store, last)
            report = store.admin.verify()
            self._check(report.ok, f"verify: {report.findings}")
        self.seen = last
        return last

    def _check_topics(self, store: Any, last: int) -> None:
        new = range(self.seen + 1, last + 1)
        bursts = {number: len(burst(number)) for number in new}
        for topic in TOPICS:
            numbers = [number_of(message) for message in take_in_chunks(store, f"{topic}/audit")]
            self._check(numbers == sorted(numbers), f"{topic}: not in the order of the commits")
            wanted = bursts if topic == "burst" else dict.fromkeys(new, 1)
            self._check(Counter(numbers) == Counter(wanted), f"{topic}: not what was committed")

    def _check_work(self, store: Any, last: int) -> None:
        left = [bytes(message.payload) for message in store.browse(WORK)]
        wanted = [payload(last)] if last % 2 else []
        self._check(left == wanted, f"{WORK}: {len(left)} messages where {len(wanted)} belong")

    def _check(self, holds: bool, words: str) -> None:
        if not holds:
            raise Violation(words)


def take_in_chunks(store: Any, source: str) -> list[bytes]:
    """All messages of a source, taken."""
    taken: list[bytes] = []
    while True:
        with store.transaction() as transaction:
            payloads = transaction.get_many(source, max_messages=CHUNK).payloads()
        if not payloads:
            return taken
        taken += payloads

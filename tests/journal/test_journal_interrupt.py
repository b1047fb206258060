"""A signal's exception while the journal goes on in its next segment (J6)."""

from __future__ import annotations

import pytest

from quire.errors import StoreFailed
from quire.journal.segments import SegmentSet
from tests.journal.machine import PAGE, SEGMENT, Machine, put


@pytest.mark.parametrize("where", ["before", "after"])
def test_an_interrupt_between_two_segments(
    machine: Machine, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No segment is skipped afterwards: the journal refuses, and recovers what was acknowledged."""
    journal = machine.create()
    put(journal, 1, b"x" * (SEGMENT - 4 * PAGE))
    advance = SegmentSet.advance

    def interrupted(self: SegmentSet) -> None:
        if where == "after":
            advance(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(SegmentSet, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        put(journal, 2, b"y" * 4 * PAGE)
    monkeypatch.undo()
    with pytest.raises(StoreFailed):
        put(journal, 3, b"z" * 4 * PAGE)
    journal.close()
    assert [number for _, number, _ in machine.recovered()] == [1]

"""Canaries of the parts of crash workloads: a broken engine that their checks must catch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from quire.engine.namespaces.admin import AdminHandlers
from quire.interface.listening import Course, Tells
from quire.reports.info import Notice, QueueInfo
from tests.engine.crashing.definitions import Together
from tests.engine.crashing.parts import try_parts
from tests.engine.crashing.topics import Listeners

pytestmark = [pytest.mark.crash, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def test_canary_queues_that_are_made_by_several_commits(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that makes several queues one after another is caught."""
    create = AdminHandlers.create_queues

    def create_each(self: AdminHandlers, queues: Iterable[Any]) -> list[QueueInfo]:
        return [info for queue in queues for info in create(self, [queue])]

    monkeypatch.setattr(AdminHandlers, "create_queues", create_each)
    with pytest.raises(AssertionError):
        try_parts(seed, Together)


@pytest.mark.cases(4)
def test_canary_a_listener_whose_place_moves_too_early(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener whose place is kept behind a notice that nobody has yet is caught."""
    look = Course.look

    def look_and_keep(self: Course, store: Tells) -> Notice | None:
        found = look(self, store)
        if found is not None and self.request.name is not None:
            self.keep(store)
        return found

    monkeypatch.setattr(Course, "look", look_and_keep)
    with pytest.raises(AssertionError):
        try_parts(seed, Listeners)

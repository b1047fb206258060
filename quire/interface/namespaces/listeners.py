"""Hearing of messages that are put, or that leave: `store.listeners`."""

# mypy: disable-error-code="empty-body"
# The body of a row is its call.

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Literal, TypeAlias

from quire.calls.call_table import Subject, look
from quire.interface import listening
from quire.limits import NOTICE_IDS
from quire.reports.info import ListenerInfo, Notice
from quire.selectors import template

ListenedEvent: TypeAlias = Literal["put", "removal"]


class Listeners(Subject, path="listeners"):
    """`store.listeners`: who hears of messages, after the commit and never before.

    What every method raises is told with `Store`.
    """

    __slots__ = ()

    def add(
        self,
        source: str,
        callback: Callable[[Notice], object] | None = None,
        *,
        group: int = 0,
        where: template.SelectorOrTemplate | None = None,
        on: ListenedEvent = "put",
        name: str | None = None,
        backlog: bool = True,
        max_ids: int = NOTICE_IDS,
    ) -> listening.Listener:
        """Hear of messages from now on: by a function that is called, or by the loop over this.

            with store.listeners.add("orders", group=7) as notices:
                for notice in notices:
                    print(notice.ids)

        A `Notice` has the ids of messages, up to `max_ids`, and reserves nothing: who comes too
        late gets None. It joins what was committed since the last one, and leaves no id out. What
        cannot be got at its put is told when it can (`notice.on` is "due"), and what is there again
        is told again ("returned"): it was given back by a rollback, a time-out, `reject`, a hold
        that has ended or a retry whose delay is over. While gets are stopped nothing is told. Of
        messages that had gone by before the listener looked it says how many they were (`missed`).

        `source`: a queue; where `on` is "removal" a work queue or "topic/subscription", and what is
        told is what readers have got and committed, or what has expired or was moved away. `group`:
        0 hears all; else messages of this group and those of group 0. `where`: a selector or a
        template that a message has to fit. `backlog`: begin with what is in the queue already,
        which is told to this listener alone; not of removals.

        `callback`: called in a thread of this store object, one after another for all listeners of
        it, without a lock: it may use the store. What it raises is logged (`quire.callbacks`), and
        it is called for what comes next; under a name with the same notice again, after half a
        second, one, two, ... The tenth time the listener ends with that `error`, and whoever adds
        it again goes on with that notice.

        `name`: durable. Where the listener is, is kept in the store under the name whenever a
        notice is done with (its callback has returned, or the loop comes for the next one), and who
        adds it again goes on there, after a restart or with another owner, too: each message is
        told at least once. One that listens under a name ends when another one does so, too.

        Raises QueueNotFound, SubscriptionNotFound, InvalidSelector, InvalidArgument; also for a
        function that does not take a Notice, and where the
        name is of a listener for something else: `remove` that first.
        """
        request = listening.ListenerRequest(source, group, where, on, name, backlog, max_ids)
        return listening.add_listener(self._of, request.checked(), callback)

    @look(needs="browse watched:source")
    def poll_notices(
        self,
        source: str,
        position: int | None = None,
        *,
        group: int = 0,
        where: template.SelectorOrTemplate | None = None,
        on: ListenedEvent = "put",
        until: int | None = None,
        max_ids: int = NOTICE_IDS,
        created_us: int | None = None,
        mark: str = "",
    ) -> Notice:
        """Return the notice for a listener at the position: listening by polling.

        `position`: that of a `Notice`, from which on is told; 0: all that the queue keeps; None:
        nothing is told but the position after all that was committed until now. It is a position in
        the queue; of removals it is the number of the next message that leaves. `until`: a position
        to end before, of a queue's messages that were there before anybody listened: of them those
        are told that are kept still, and none is missed. `created_us`: that of the `Notice` with
        the position, so that it is not taken for one in a later queue of the same name. `mark`: the
        `Notice`'s, too: what became available since is told then, of what the position has passed.
        The others as for `add`. Who asks again within a minute misses nothing of what readers are
        faster with, or give back, up to some thousand messages.

        Raises QueueNotFound, SubscriptionNotFound, PositionLost (another queue has the name now, as
        `created_us`, or a position behind its end, says),
        InvalidSelector, InvalidArgument, StoreCorrupt.
        """

    def list(self) -> builtins.list[ListenerInfo]:
        """The durable registrations, by name. Raises StoreCorrupt for one that is not readable."""
        return listening.listed(self._of.states.items(listening.STATE))

    def remove(self, name: str) -> bool:
        """Remove a durable registration; whether it was there. Who listens under the name ends.

        Raises InvalidArgument.
        """
        return listening.remove_place(self._of, name)

"""Patterns that name many queues to get from: "orders.*", "sensors.#/audit".

The words between a name's dots are compared one by one. `*` stands for one word, `#` for any number
of them, none included, as in the topic exchanges of AMQP 0-9-1. Without "/" a pattern names work
queues, with it the subscription of that name of each topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

from quire.errors import InvalidArgument

from .properties import NAME

_ONE: Final = "*"
_ANY: Final = "#"
_WRONG: Final = r"[^A-Za-z0-9._*#-]|(?<![.])[*#]|[*#](?![.]|$)"


def is_pattern(source: object) -> bool:
    """Return True if the source is to be a pattern: no name of a queue has such a character."""
    return isinstance(source, str) and (_ONE in source or _ANY in source)


def wants_one(source: str) -> InvalidArgument:
    """A pattern stands where only some calls take one."""
    return InvalidArgument(
        f"source {source!r:.100} is a pattern: get and get_many without id and where, consume "
        "and Workers take from all queues that it names; give one queue here"
    )


class SourcePattern(NamedTuple):
    """A pattern of queues' names, with the subscription that it asks for."""

    words: tuple[str, ...]
    subscription: str | None  # None: of work queues

    @classmethod
    def of(cls, source: str) -> Self:
        """Read a pattern. Raises InvalidArgument, which tells where it is wrong."""
        names, slash, subscription = source.partition("/")
        wrong = re.search(_WRONG, "." + names)  # a sign may be the first
        named = NAME.match(names.replace(_ONE, "x").replace(_ANY, "x"))  # as long as a name
        right = named.end() if named is not None else 0
        if wrong is not None:
            right = min(right, max(wrong.start(), 1) - 1)
        if right < len(names) or not names:
            what = f"{names[right]!r} stands there" if names else "nothing stands there"
            raise InvalidArgument(
                f"pattern {source!r:.250}, character {right + 1}: {what}; give words of "
                "A-Z a-z 0-9 _ - with dots between them, * for one word, # for any number of "
                "them, as long as a name may be"
            )
        if slash and NAME.fullmatch(subscription) is None:
            raise InvalidArgument(
                f"pattern {source!r:.250}, character {len(names) + 2}: the name of a subscription "
                "stands behind '/', without * and #"
            )
        return cls(tuple(names.split(".")), subscription if slash else None)

    def matches(self, name: str) -> bool:
        """Return True if the pattern names this queue."""
        words = self.words
        places = self._past_any([0])  # so many words of the pattern may be behind us
        for word in name.split("."):
            after = [
                at if words[at] == _ANY else at + 1
                for at in places
                if at < len(words) and words[at] in (_ANY, _ONE, word)
            ]
            places = self._past_any(after)
        return len(words) in places

    def _past_any(self, places: Iterable[int]) -> set[int]:
        """Return these places, and those that follow where any number may be none."""
        found = set()
        for at in places:
            found.add(at)
            while at < len(self.words) and self.words[at] == _ANY:
                at += 1
                found.add(at)
        return found

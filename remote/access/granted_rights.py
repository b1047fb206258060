"""The rights of one user at one moment: a pure value, of which nothing is read or written.

GR1. What no grant allows is not allowed.
GR2. `admin` on a name is every right on it, `get` is `browse` too; nothing else follows from
    another right. A name is seen by who has any right on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from quire.remote.limits import MAX_KEPT_ANSWERS

from .users_document import ANY_KIND, Grant, NameKind, Right

_CONTAINED: Final = {
    Right.ADMIN: frozenset(Right),
    Right.GET: frozenset({Right.GET, Right.BROWSE}),
}


class Need(NamedTuple):
    """A right that a call needs on a name; without a right: that the user sees it."""

    right: Right | None
    kind: NameKind
    name: str  # with a * behind it: on all names that begin so

    def __str__(self) -> str:
        right = "any right" if self.right is None else self.right.value
        if self.kind is NameKind.STORE:
            return f"{right} on the store"
        return f"{right} on {self.kind.value} {self.name!r:.250}"


class GrantedRights:
    """All rights of a user."""

    __slots__ = ("_answers", "_by_kind", "puts")

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._by_kind: dict[NameKind, list[tuple[str, frozenset[Right]]]] = {}
        for grant in grants:
            rights = frozenset[Right]().union(
                *(_CONTAINED.get(right, frozenset({right})) for right in grant.rights)
            )
            kinds = NameKind if grant.kind == ANY_KIND else (NameKind(grant.kind),)
            for kind in kinds:
                self._by_kind.setdefault(kind, []).append((grant.names, rights))
        self._answers: dict[Need, bool] = {}
        self.puts = set[str]()  # queues that may be put to, as far as that is known

    def allows(self, need: Need) -> bool:
        """Return True if a grant has that right on that name, or on all of those names (GR1)."""
        found = self._answers.get(need)
        if found is None:
            if len(self._answers) >= MAX_KEPT_ANSWERS:
                self._answers.clear()
                self.puts.clear()
            found = self._answers[need] = self._find(need)
        return found

    def _find(self, need: Need) -> bool:
        return any(
            (need.right is None or need.right in rights) and _contains(names, need.name)
            for names, rights in self._by_kind.get(need.kind, ())
        )

    def sees(self, kind: NameKind, name: str) -> bool:
        """Return True if the user has any right on the name (GR2)."""
        return self.allows(Need(None, kind, name))


def _contains(names: str, wanted: str) -> bool:
    """Return True if a grant's names are, or contain, those that are wanted (UD2)."""
    if names.endswith("*"):
        return wanted.startswith(names[:-1])
    return names == wanted

"""Patterns of LIKE: `_` is one character, `%` any number of them, others are themselves."""

from __future__ import annotations

import re


class LikePattern:
    """A pattern. A text is compared in one pass, with no way back, whatever the pattern is.

    `plain` is how a text has to be ("equal", "starts", "ends" or "contains") with `part`, where the
    pattern says no more than that; else None.
    """

    __slots__ = ("_first", "_last", "_last_size", "_middle", "part", "plain")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        """`escape`: the character that makes a `_`, a `%` or itself plain.

        Raises ValueError where it stands before another one, or at the end.
        """
        parts = _parts(pattern, escape)
        self._first = _compiled(parts[0])
        self._last = _compiled(parts[-1]) if len(parts) > 1 else None
        self._last_size = len(parts[-1])
        self._middle = [_compiled(part) for part in parts[1:-1] if part]
        texts = ["".join(map(str, part)) for part in parts]
        self.part = max(texts, key=len)
        self.plain = None
        if not any(None in part for part in parts) and sum(map(bool, texts)) <= 1:
            self.plain = "contains"
            if len(parts) == 1:
                self.plain = "equal"
            elif texts[0]:
                self.plain = "starts"
            elif texts[-1]:
                self.plain = "ends"

    def is_like(self, text: str) -> bool:
        """Return True if the text is like the pattern."""
        found = self._first.match(text)
        if found is None:
            return False
        place, end = found.end(), len(text)
        if self._last is None:
            return place == end
        end -= self._last_size
        if end < place or self._last.match(text, end) is None:
            return False
        for part in self._middle:  # as early as can be: so it leaves the most to those behind it
            found = part.search(text, place, end)
            if found is None:
                return False
            place = found.end()
        return True


def _parts(pattern: str, escape: str | None) -> list[list[str | None]]:
    """Return the parts between the signs for any number of characters; None is one character."""
    parts: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            plain = next(characters, "")
            if plain not in ("_", "%", escape) or not plain:
                raise ValueError(
                    f"{escape!r} stands before {plain!r}" if plain else f"{escape!r} stands last"
                )
            parts[-1].append(plain)
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append(None if character == "_" else character)
    return parts


def _compiled(part: list[str | None]) -> re.Pattern[str]:
    made = "".join("." if each is None else re.escape(each) for each in part)
    return re.compile(made, re.DOTALL)

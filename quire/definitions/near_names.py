"""Guessing the name that somebody meant: for error messages, where time is no matter."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from quire.libraries.late_imports import importing
from quire.limits import NEAR_CHARACTERS, NEAR_NAMES


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """ " (did you mean 'orders'?)", of the name that is nearest; "" where none is near."""
    near = nearest(word, known)
    return "" if near is None else f" (did you mean {near!r}?)"


def nearest(word: object, known: Iterable[str]) -> str | None:
    """Return the nearest of the known names; None where none is near."""
    if not isinstance(word, str) or not word:
        return None
    with importing():
        from difflib import get_close_matches  # which a program without mistakes never needs

    near = (
        name for name in known if name != word and abs(len(name) - len(word)) <= NEAR_CHARACTERS
    )
    return next(iter(get_close_matches(word, islice(near, NEAR_NAMES), 1, 0.65)), None)

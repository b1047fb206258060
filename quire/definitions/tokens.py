"""Reading a text token after token: what the grammars of schemas and of row conditions share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn


class Tokens:
    """The tokens of a text, each a kind and its words, and a place among them.

    `pattern` has a named group for each kind. `fail` raises the error that a text cannot be read
    where these words stand.
    """

    def __init__(
        self, text: str, pattern: re.Pattern[str], fail: Callable[[str], NoReturn]
    ) -> None:
        self._fail = fail
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        place, end = 0, len(text.rstrip())
        while place < end:
            found = pattern.match(text, place)
            if found is None:
                fail(text[place : place + 20].strip())
            kind = str(found.lastgroup)
            self._tokens.append((kind, found[kind]))
            place = found.end()

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        """Return the next token, or one further ahead; behind the last one the kind is "end"."""
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else ("end", "its end")

    def next(self) -> tuple[str, str]:
        """Return the next token and pass it; fails at the end."""
        found = self.peek()
        if found[0] == "end":
            self._fail(found[1])
        self._at += 1
        return found

    def take_word(self, word: str) -> bool:
        """Pass the next token if it is this word, in capital or small letters."""
        kind, text = self.peek()
        found = kind == "word" and text.lower() == word
        self._at += found
        return found

    def take_sign(self, sign: str) -> bool:
        """Pass the next token if it is this sign."""
        found = self.peek() == ("sign", sign)
        self._at += found
        return found

    def expect_sign(self, sign: str) -> None:
        """Pass this sign; fails where it is not there."""
        if not self.take_sign(sign):
            self.fail_here()

    def expect_end(self) -> None:
        """Fail where a token is left."""
        if self.peek()[0] != "end":
            self.fail_here()

    def fail_here(self) -> NoReturn:
        """Fail at the next token."""
        self._fail(self.peek()[1])

"""Tokens: secrets by which a server knows its users.

TO1. A token is `quire_<key id>_<secret>`. The secret is 32 bytes that the environment draws; the
    key id is no secret, and tells which token it is. The users file keeps the SHA-256 of the
    secret's bytes alone, so nobody who reads that file is let in by it. (A slow hash is for
    passwords, which can be guessed; 256 bits cannot.)
TO2. What is sent is looked up by its key id and then compared by `hmac.compare_digest`, also where
    there is no such key id: the time tells nothing of what is stored.
TO3. The text of a token is shown nowhere but by who asks for `text`: not by `repr`, `str`, an error
    or a copy for another process (pickle).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final, NoReturn

from quire.env import Env
from quire.errors import InvalidArgument

KEY_ID: Final = re.compile(r"[0-9a-f]{16}")
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_TOKEN: Final = re.compile(r"quire_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


class UserToken:
    """A token that is well formed, whoever's it is (TO3)."""

    __slots__ = ("_secret", "key_id")

    def __init__(self, text: object) -> None:
        """Raises InvalidArgument, which does not show what was given."""
        found = _TOKEN.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise InvalidArgument(
                "the token is none (its text is not shown): give one as `quire user token` prints"
                " it, quire_<key id>_<secret>"
            )
        self.key_id: Final = found[1]
        self._secret: Final = found[2]

    @classmethod
    def draw(cls, env: Env) -> UserToken:
        """Make a new one (TO1)."""
        words = [env.random_u64() for _ in range(4)]
        secret = b"".join(word.to_bytes(8, "big") for word in words)
        text = base64.urlsafe_b64encode(secret).decode().rstrip("=")
        return cls(f"quire_{env.random_u64():016x}_{text}")

    @property
    def text(self) -> str:
        """The token itself: for its user once, and for the server that it is sent to."""
        return f"quire_{self.key_id}_{self._secret}"

    def digest(self) -> str:
        """Return what is kept of it (TO1)."""
        secret = base64.urlsafe_b64decode(self._secret + "=")
        return hashlib.sha256(secret).hexdigest()

    def fits(self, digest: str | None) -> bool:
        """Return True if it is the one of this digest; None: there is none of its key id (TO2)."""
        own = self.digest()
        return hmac.compare_digest(own, digest or own[::-1]) and digest is not None

    def __repr__(self) -> str:
        return f"<UserToken {self.key_id}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a token goes to no other process: let that have it by a file of its own")

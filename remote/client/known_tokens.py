"""The token by which a server knows this program's user: where it is found.

- It is the argument, or QUIRE_TOKEN, or that of the first address of the URL which the file of
  tokens names: `~/.config/quire/tokens`, a line for each server, `host:port token`.
- The file is its user's alone: one that others may read is refused, as its tokens are known then.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final

from quire.errors import InvalidArgument
from quire.remote.access.tokens import UserToken
from quire.remote.limits import MAX_TOKENS_FILE_BYTES
from quire.remote.wire.address import TCP, urls_of

VARIABLE: Final = "QUIRE_TOKEN"
_FILE: Final = os.path.join("~", ".config", "quire", "tokens")


def token_for(url: str, token: str | None) -> UserToken | None:
    """Return the token for the servers of a URL, if there is one. Raises InvalidArgument."""
    if token is not None:
        return UserToken(token)
    found = os.environ.get(VARIABLE)
    if found:
        return UserToken(found)
    kept = dict(_kept_tokens(os.path.expanduser(_FILE)))
    for each in urls_of(url):
        text = kept.get(each.removeprefix(TCP))
        if text is not None:
            return UserToken(text)
    return None


def _kept_tokens(path: str) -> Iterator[tuple[str, str]]:
    """Read the file: addresses, each with its token. Nothing of a line is shown by an error."""
    try:
        with open(path, encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            lines = file.read(MAX_TOKENS_FILE_BYTES).splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} cannot be read: {type(error).__name__}") from None
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or status.st_uid != os.geteuid():
        raise InvalidArgument(
            f"{path} is not this user's alone: chmod 600 {path}, and replace its tokens where"
            " others may have read them"
        )
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise InvalidArgument(f"{path}, line {number}: write host:port and the token")
        yield words[0].removeprefix(TCP), words[1]

"""Objects that are there once: a copy would end what they hold, or use it in another process."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from quire.errors import InvalidArgument


def not_copied(self: object, protocol: SupportsIndex) -> NoReturn:
    """For `__reduce_ex__`, which copy, deepcopy and pickle all ask."""
    raise InvalidArgument(
        f"{self!r} cannot be copied, pickled or sent to another process: use the object that is "
        "there, in all threads; open the store in each process, by its path"
    )

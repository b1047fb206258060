"""Options of an open store, with their bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Self

from msgspec import Struct

from quire import limits
from quire.definitions.near_names import did_you_mean
from quire.errors import InvalidArgument
from quire.ltds import codec_named

from .strategies import strategy_named

FIXED: Final = ("page_size", "segment_bytes", "data_files")
_CHOICES: Final = {"write_buffer": ("shared", "per-queue"), "when_full": ("spill", "large")}


_MARKS: Final = ("warn_below_bytes", "refuse_below_bytes")

_NAMED: Final = {"strategy": strategy_named, "ltds_compression": codec_named}


class Options(Struct, frozen=True):
    """How a store works. Those in `FIXED` are fixed when the store is created.

    Sizes in bytes, times in seconds.
    """

    page_size: int = limits.DEFAULT_PAGE_SIZE
    segment_bytes: int = limits.DEFAULT_SEGMENT_BYTES
    data_files: int = 1
    inline_limit_bytes: int = limits.DEFAULT_INLINE_LIMIT_BYTES
    large_limit_bytes: int = limits.DEFAULT_LARGE_LIMIT_BYTES
    large_limit_messages: int = limits.DEFAULT_LARGE_LIMIT_MESSAGES
    large_flush_bytes: int = limits.LARGE_FLUSH_BYTES
    write_buffer: str = "shared"  # or "per-queue"
    write_buffer_bytes: int = limits.DEFAULT_WRITE_BUFFER_BYTES
    write_buffer_messages: int = limits.DEFAULT_WRITE_BUFFER_MESSAGES
    write_buffer_seconds: float = math.inf  # older transactions leave it, full or not
    when_full: str = "spill"  # the oldest transaction into its queues, or "large": into files
    checkpoint_bytes: int = limits.DEFAULT_CHECKPOINT_BYTES
    grow_bytes: int = limits.DEFAULT_GROW_BYTES
    # Free space of the disk, see `quire.engine.upkeep.disk_watch`; 0: none is watched for.
    warn_below_bytes: int = 0
    refuse_below_bytes: int = 0
    transaction_timeout: float = limits.DEFAULT_TRANSACTION_TIMEOUT
    fragment_age: float = limits.FRAGMENT_AGE_SECONDS
    ltds_compression: str | None = None  # of large transactions' files: "zstd" or "lz4"
    commit_timeout: float = limits.DEFAULT_COMMIT_TIMEOUT
    call_timeout: float = limits.DEFAULT_CALL_TIMEOUT  # of a process that joins
    timings: bool = False  # how long commits and syncs take is counted: see `call_times`
    strategy: str = "reserve-mode"  # see `quire.engine.strategies`
    network_file_system: bool = False  # a store on one is only warned of

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """From keyword arguments of `open`. `InvalidArgument` for unknown or unusable ones."""
        known = cls.__annotations__
        for name, value in values.items():
            if name not in known:
                raise InvalidArgument(
                    f"unknown option {name!r}{did_you_mean(name, sorted(known))}: there are "
                    f"{', '.join(sorted(known))}"
                )
            if name in _NAMED:
                _NAMED[name](value)
            elif name in _CHOICES and value not in _CHOICES[name]:
                wanted = f"one of {', '.join(_CHOICES[name])}"
                raise InvalidArgument(f"option {name} = {value!r}: give {wanted}")
            elif known[name] == "bool":
                if not isinstance(value, bool):
                    raise InvalidArgument(f"option {name} = {value!r}: give True or False")
            elif name in _MARKS and value == 0 and type(value) is int:
                continue
            elif name not in _CHOICES:
                _check_number(name, value, fractions=known[name] == "float")
        made = cls(**values)
        if 0 < made.warn_below_bytes < made.refuse_below_bytes:
            raise InvalidArgument(
                f"option warn_below_bytes = {made.warn_below_bytes}: give no less than "
                f"refuse_below_bytes, {made.refuse_below_bytes}, or leave it out"
            )
        return made

    def inline_limit(self, max_group_bytes: int) -> int:
        """A transaction's record has to fit a group with room for its parts."""
        return min(self.inline_limit_bytes, max_group_bytes // 2)


def _check_number(name: str, value: Any, *, fractions: bool) -> None:
    number = (int, float) if fractions else (int,)
    if not isinstance(value, number) or isinstance(value, bool) or not value > 0:
        what = "a number" if fractions else "an int"
        raise InvalidArgument(f"option {name} = {value!r}: give {what} above 0")
    if name == "data_files" and value > limits.MAX_DATA_FILES:
        raise InvalidArgument(f"option data_files = {value!r}: give 1 to {limits.MAX_DATA_FILES}")


def check_fixed(options: Mapping[str, object], settings: Mapping[str, int]) -> None:
    """Raises InvalidArgument where a store is opened with other fixed options than it has."""
    for name in FIXED:
        if name in options and name in settings and options[name] != settings[name]:
            raise InvalidArgument(
                f"{name} is fixed when a store is created: this one has {settings[name]}, leave "
                "the option out"
            )

"""Limits of a salvage, with their reasons."""

from __future__ import annotations

from typing import Final

# Blocks are looked for in pieces of a file of this size: two of them are in memory.
SEARCHED_BYTES: Final = 4 << 20

# A large transaction's file is copied in pieces of this size.
COPIED_BYTES: Final = 4 << 20

# Ids that messages may have had of which no record is left: those of new ones come after them.
LOST_IDS: Final = 1 << 24

# The new journal numbers its openings from so many after the last one that was found, as the
# damaged store may have had others that were not.
OPENINGS_PASSED: Final = 1 << 16

"""What a transaction's record may say beside its messages, reads and ledger entries.

A kind of section is one module here and one row of `KINDS`: its bytes, what they mean to the
fold, and what a commit has to check and to hold for it before its record is written.
"""

from .kinds import KINDS, pack_sections, read_sections
from .moves import Moves, MovesSection, Seek, check_kept, unpack_moves
from .section import PendingSection, Section
from .values import Setting, Values, ValuesSection

__all__ = [
    "KINDS",
    "Moves",
    "MovesSection",
    "PendingSection",
    "Section",
    "Seek",
    "Setting",
    "Values",
    "ValuesSection",
    "check_kept",
    "pack_sections",
    "read_sections",
    "unpack_moves",
]

"""What a transaction's record may say beside its messages, reads and ledger entries.

A kind of section is one module here and one row of `KINDS`: its bytes, what they mean to the
fold, and what a commit has to check and to hold for it before its record is written.
"""

from .attachment import Attachment
from .decides import Decides, DecidesSection
from .deliveries import Deliveries, DeliveriesSection, Untouched
from .failures import Failure, Failures
from .held import Held, HeldSection, xid_in
from .kinds import KINDS, pack_prepared, pack_sections, read_sections
from .moves import Moves, MovesSection, Seek, check_kept
from .numbers import Heard, Numbers
from .section import PendingSection, Section, Stamp
from .values import Setting, Values, ValuesSection

__all__ = [
    "KINDS",
    "Attachment",
    "Decides",
    "DecidesSection",
    "Deliveries",
    "DeliveriesSection",
    "Failure",
    "Failures",
    "Heard",
    "Held",
    "HeldSection",
    "Moves",
    "MovesSection",
    "Numbers",
    "PendingSection",
    "Section",
    "Seek",
    "Setting",
    "Stamp",
    "Untouched",
    "Values",
    "ValuesSection",
    "check_kept",
    "pack_prepared",
    "pack_sections",
    "read_sections",
    "xid_in",
]

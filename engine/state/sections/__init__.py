"""The sections of a transaction's record: all but its messages, reads and ledger entries.

A kind of section is one module here and one row of `KINDS`: its bytes, what they mean to the
fold, and what a commit has to check and to hold for it before its record is written.
"""

__all__: list[str] = []

"""The exceptions of PEP 249, as a branch of Quire's tree.

    QuireError
    └── Error
        ├── InterfaceError
        └── DatabaseError
            ├── DataError
            ├── OperationalError      the store cannot at this time: full, failed, gone, too late
            ├── IntegrityError        the ledger holds the key with this or a later version
            ├── InternalError         damage on disk
            ├── ProgrammingError      calls out of order, unknown names and xids, bad arguments
            └── NotSupportedError

An error of the store is raised as the one that PEP 249 has for it, with the store's own as its
`__cause__`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from quire import errors


class Warning(Exception):
    """The class that PEP 249 asks for; Quire raises no warnings."""


class Error(errors.QuireError):
    """The root of what a connection raises."""


class InterfaceError(Error):
    """The class that PEP 249 asks for; Quire does not raise it."""


class DatabaseError(Error):
    """The store refused."""


class DataError(DatabaseError):
    """The class that PEP 249 asks for; Quire does not raise it."""


class OperationalError(DatabaseError):
    """The store cannot at this time: it is full, failed, gone, or it took too long."""


class IntegrityError(DatabaseError):
    """The ledger holds the key with this or a later version."""


class InternalError(DatabaseError):
    """The store's files are damaged, or not of a version that can be read."""


class ProgrammingError(DatabaseError):
    """Calls out of order, names and xids that are not there, arguments that cannot be used."""


class NotSupportedError(DatabaseError):
    """The class that PEP 249 asks for; all of its two-phase calls are supported."""


_CATEGORIES: Final[tuple[tuple[type[errors.QuireError], type[DatabaseError]], ...]] = (
    (errors.TransactionTimeout, OperationalError),
    (errors.TransactionAborted, OperationalError),
    (errors.KeyHeld, OperationalError),
    (errors.AlreadyCommitted, IntegrityError),
    (errors.TransactionError, ProgrammingError),
    (errors.InvalidArgument, ProgrammingError),
    (errors.QueueNotFound, ProgrammingError),
    (errors.SubscriptionNotFound, ProgrammingError),
    (errors.StoreClosed, ProgrammingError),
    (errors.StoreCorrupt, InternalError),
    (errors.StoreVersion, InternalError),
    (errors.StoreError, OperationalError),
    (errors.QueueFull, OperationalError),
    (errors.RemoteError, OperationalError),
)


@contextmanager
def as_dbapi_errors() -> Iterator[None]:
    """Raise what PEP 249 has for an error of the store."""
    try:
        yield
    except Error:
        raise
    except errors.QuireError as error:
        for kind, category in _CATEGORIES:
            if isinstance(error, kind):
                raise category(str(error)) from error
        raise DatabaseError(str(error)) from error

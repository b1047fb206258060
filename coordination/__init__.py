"""Quire in transactions with other systems: PEP 249, the package `transaction`, a coordinator."""

from .connection import Connection, connect
from .coordinator import Coordinator, Participant
from .data_manager import QuireDataManager, join
from .dbapi_errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from .xid import Xid

__all__ = [
    "Connection",
    "Coordinator",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "Participant",
    "ProgrammingError",
    "QuireDataManager",
    "Warning",
    "Xid",
    "connect",
    "join",
]

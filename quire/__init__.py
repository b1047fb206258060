"""Quire: a transactional multi-queue engine. SQLite's way of working, for message queues.

    import quire

    with quire.open("shop.quire") as store:
        store.create_queue("orders", kind="work", exist_ok=True)
        store.put("orders", b"3 apples")
        with store.consume("orders", timeout=1.0) as messages:
            for order in messages:
                print(order.payload)

| to | see |
|---|---|
| open a store: own it, or join its owner | `open`; `connect` and `serve` for other ways to it |
| make queues and subscriptions, put and get, look after the store | `Store`, which `open` gives |
| do what is less common, by subject | `Admin`, `Cron`, `Delayed`, `Prepared`, `States` |
| connect a store to other systems | `Integration`, `TransactionIntegration` |
| put to and get from several queues, all or nothing | `Transaction`, of `store.transaction()` |
| have a transaction begun again where others were in its way | `run_transaction` |
| hear of messages that are put or leave | `Listeners`, `Listener`, `Notice` |
| have requests answered, each executed once | `Session`, of `store.session`; `Reply` |
| handle messages one after another, or in threads | `Consumer`, of `store.consume`; `Workers` |
| know what a message carries, or have a value made of it | `Message`, `Messages`; `quire.codecs` |
| keep messages in memory, or in a way of one's own | `QueueOptions.type`, `register_type` |
| have messages in another order than that of commits | `QueueOptions.order`, `register_order` |
| choose messages by what they say | `Template` |
| catch what goes wrong | `QuireError`, the root of all that is raised on purpose |
| use asyncio, or transactions with other systems | `quire.aio`; `quire.coordination` |
| put in a database's transaction, or have an effect there once | `quire.databases` |
| keep rows by key, more than memory holds | `quire.keyed` |
| watch a store: metrics, health | `quire.metrics` |
| read and write queues with Spark, or build graphs of steps | `quire.spark_graphs` |
| test on a simulated machine that crashes and fills up | `quire.testing` |
| read a store's files in words | `dump` |
| make a new store of what is whole of a damaged one | `salvage` |

Classes whose names end in Info, and Description, Lease, Notice, Piece, QueueRecord and Report, are
plain values that the methods of a store give. Loggers stand below `quire`.
"""

import sys as _sys
from typing import TYPE_CHECKING

__version__ = "0.1.0"  # of the release

if _sys.platform in ("win32", "cygwin"):
    raise ImportError(
        "Quire runs on Linux and macOS, and not on Windows, whose locks and renames of files are "
        "others: run your program in the Windows Subsystem for Linux (WSL 2)"
    )

if TYPE_CHECKING:
    from quire import codecs as codecs
    from quire.batches.delivered_messages import Messages as Messages
    from quire.definitions.order import AttributeOrder as AttributeOrder
    from quire.definitions.order import Order as Order
    from quire.definitions.order import SequenceOrder as SequenceOrder
    from quire.definitions.order_code import OrderCode as OrderCode
    from quire.definitions.order_code import register_order as register_order
    from quire.definitions.properties import QueueChanges as QueueChanges
    from quire.definitions.properties import QueueOptions as QueueOptions
    from quire.definitions.queue_types import QueueType as QueueType
    from quire.definitions.queue_types import register_type as register_type
    from quire.definitions.retry import Retry as Retry
    from quire.errors import AlreadyCommitted as AlreadyCommitted
    from quire.errors import AlreadyExists as AlreadyExists
    from quire.errors import ArchiveCorrupt as ArchiveCorrupt
    from quire.errors import ArchiveError as ArchiveError
    from quire.errors import ArchiveFailed as ArchiveFailed
    from quire.errors import ArchiveFull as ArchiveFull
    from quire.errors import ArchiveRefused as ArchiveRefused
    from quire.errors import BackupNotFound as BackupNotFound
    from quire.errors import CertificateRefused as CertificateRefused
    from quire.errors import CodecNotFound as CodecNotFound
    from quire.errors import CommitUnfinished as CommitUnfinished
    from quire.errors import Conflict as Conflict
    from quire.errors import ConnectionLost as ConnectionLost
    from quire.errors import Deadlock as Deadlock
    from quire.errors import DiskFull as DiskFull
    from quire.errors import FileSystemWarning as FileSystemWarning
    from quire.errors import InputChanged as InputChanged
    from quire.errors import InvalidArgument as InvalidArgument
    from quire.errors import InvalidSelector as InvalidSelector
    from quire.errors import KeyHeld as KeyHeld
    from quire.errors import LimitReached as LimitReached
    from quire.errors import LockTimeout as LockTimeout
    from quire.errors import NobodyReads as NobodyReads
    from quire.errors import NoRoom as NoRoom
    from quire.errors import NotAllowed as NotAllowed
    from quire.errors import NotFound as NotFound
    from quire.errors import ObjectNotFound as ObjectNotFound
    from quire.errors import OutboxMismatch as OutboxMismatch
    from quire.errors import OutcomeUnknown as OutcomeUnknown
    from quire.errors import PayloadInvalid as PayloadInvalid
    from quire.errors import PositionLost as PositionLost
    from quire.errors import QueueDisabled as QueueDisabled
    from quire.errors import QueueExists as QueueExists
    from quire.errors import QueueFull as QueueFull
    from quire.errors import QueueInUse as QueueInUse
    from quire.errors import QueueNotFound as QueueNotFound
    from quire.errors import QuireError as QuireError
    from quire.errors import ReentrantCall as ReentrantCall
    from quire.errors import RemoteError as RemoteError
    from quire.errors import ReplyNotFound as ReplyNotFound
    from quire.errors import RequestFailed as RequestFailed
    from quire.errors import RequestTimeout as RequestTimeout
    from quire.errors import ResourceExhausted as ResourceExhausted
    from quire.errors import ScheduleExists as ScheduleExists
    from quire.errors import ScheduleNotFound as ScheduleNotFound
    from quire.errors import SessionFenced as SessionFenced
    from quire.errors import StateConflict as StateConflict
    from quire.errors import StateFull as StateFull
    from quire.errors import StepFailed as StepFailed
    from quire.errors import StepTimeout as StepTimeout
    from quire.errors import StoreClosed as StoreClosed
    from quire.errors import StoreCorrupt as StoreCorrupt
    from quire.errors import StoreError as StoreError
    from quire.errors import StoreFailed as StoreFailed
    from quire.errors import StoreFull as StoreFull
    from quire.errors import StoreLocked as StoreLocked
    from quire.errors import StoreNotFound as StoreNotFound
    from quire.errors import StoreVersion as StoreVersion
    from quire.errors import SubscriptionExists as SubscriptionExists
    from quire.errors import SubscriptionNotFound as SubscriptionNotFound
    from quire.errors import TransactionAborted as TransactionAborted
    from quire.errors import TransactionClosed as TransactionClosed
    from quire.errors import TransactionError as TransactionError
    from quire.errors import TransactionNotFound as TransactionNotFound
    from quire.errors import TransactionTimeout as TransactionTimeout
    from quire.errors import XidExists as XidExists
    from quire.file_dump.dump import dump as dump
    from quire.file_salvage.salvage import salvage as salvage
    from quire.interface.consumer import Consumer as Consumer
    from quire.interface.handlers import WorkerInfo as WorkerInfo
    from quire.interface.integration import Integration as Integration
    from quire.interface.integration import TransactionIntegration as TransactionIntegration
    from quire.interface.listening import Listener as Listener
    from quire.interface.namespaces import Admin as Admin
    from quire.interface.namespaces import Cron as Cron
    from quire.interface.namespaces import Delayed as Delayed
    from quire.interface.namespaces import Listeners as Listeners
    from quire.interface.namespaces import Prepared as Prepared
    from quire.interface.namespaces import States as States
    from quire.interface.schedules import ScheduleChanges as ScheduleChanges
    from quire.interface.schedules import ScheduleOptions as ScheduleOptions
    from quire.interface.sessions.answering import put_reply as put_reply
    from quire.interface.sessions.reply import Reply as Reply
    from quire.interface.sessions.session import Session as Session
    from quire.interface.starts import Start as Start
    from quire.interface.store import Store as Store
    from quire.interface.transaction import Transaction as Transaction
    from quire.messages.message import Message as Message
    from quire.messages.message_id import MessageId as MessageId
    from quire.messages.message_id import MessageIds as MessageIds
    from quire.messages.message_id import PutId as PutId
    from quire.messages.message_schema import HEADER_SCHEMA as HEADER_SCHEMA
    from quire.messages.message_schema import MESSAGE_SCHEMA as MESSAGE_SCHEMA
    from quire.messages.payload_reader import PayloadReader as PayloadReader
    from quire.messages.payload_writer import PayloadWriter as PayloadWriter
    from quire.messages.put_options import MessageOptions as MessageOptions
    from quire.messages.put_options import PutOptions as PutOptions
    from quire.messages.put_options import StorePutOptions as StorePutOptions
    from quire.moments import Duration as Duration
    from quire.moments import Moment as Moment
    from quire.opening import connect as connect
    from quire.opening import open as open
    from quire.opening import serve as serve
    from quire.repeated_transactions import run_transaction as run_transaction
    from quire.reports.info import CatalogItem as CatalogItem
    from quire.reports.info import CompactReport as CompactReport
    from quire.reports.info import Description as Description
    from quire.reports.info import Lease as Lease
    from quire.reports.info import ListenerInfo as ListenerInfo
    from quire.reports.info import Notice as Notice
    from quire.reports.info import Piece as Piece
    from quire.reports.info import PreparedInfo as PreparedInfo
    from quire.reports.info import QueueInfo as QueueInfo
    from quire.reports.info import QueueRecord as QueueRecord
    from quire.reports.info import Report as Report
    from quire.reports.info import ScheduleInfo as ScheduleInfo
    from quire.reports.info import SubscriptionInfo as SubscriptionInfo
    from quire.reports.info import TransactionInfo as TransactionInfo
    from quire.reports.requests import RequestInfo as RequestInfo
    from quire.reports.requests import RequestState as RequestState
    from quire.reports.requests import SessionInfo as SessionInfo
    from quire.selectors.template import ANY as ANY
    from quire.selectors.template import Template as Template
    from quire.tls import Tls as Tls
    from quire.workers import Workers as Workers
else:
    import _signal
    import os as _os
    from _thread import RLock as _RLock
    from importlib import import_module

    # Where each name above is, for who asks for it. Nothing is imported before that.
    _MODULES = ("codecs",)
    _FURTHER = ("aio", "coordination", "databases", "graphs", "keyed", "spark_graphs", "testing")
    _PLACES = {
        "quire.batches.delivered_messages": ("Messages",),
        "quire.interface.handlers": ("WorkerInfo",),
        "quire.definitions.order": (
            "AttributeOrder",
            "Order",
            "SequenceOrder",
        ),
        "quire.definitions.order_code": (
            "OrderCode",
            "register_order",
        ),
        "quire.definitions.properties": (
            "QueueChanges",
            "QueueOptions",
        ),
        "quire.definitions.queue_types": (
            "QueueType",
            "register_type",
        ),
        "quire.definitions.retry": ("Retry",),
        "quire.errors": (
            "AlreadyCommitted",
            "AlreadyExists",
            "ArchiveCorrupt",
            "ArchiveError",
            "ArchiveFailed",
            "ArchiveFull",
            "ArchiveRefused",
            "BackupNotFound",
            "CertificateRefused",
            "CodecNotFound",
            "CommitUnfinished",
            "Conflict",
            "ConnectionLost",
            "Deadlock",
            "DiskFull",
            "FileSystemWarning",
            "InputChanged",
            "InvalidArgument",
            "InvalidSelector",
            "KeyHeld",
            "LimitReached",
            "LockTimeout",
            "NoRoom",
            "NotAllowed",
            "NobodyReads",
            "NotFound",
            "ObjectNotFound",
            "OutboxMismatch",
            "OutcomeUnknown",
            "PayloadInvalid",
            "PositionLost",
            "QueueDisabled",
            "QueueExists",
            "QueueFull",
            "QueueInUse",
            "QueueNotFound",
            "QuireError",
            "ReentrantCall",
            "RemoteError",
            "ReplyNotFound",
            "RequestFailed",
            "RequestTimeout",
            "ResourceExhausted",
            "ScheduleExists",
            "ScheduleNotFound",
            "SessionFenced",
            "StateConflict",
            "StateFull",
            "StepFailed",
            "StepTimeout",
            "StoreClosed",
            "StoreCorrupt",
            "StoreError",
            "StoreFailed",
            "StoreFull",
            "StoreLocked",
            "StoreNotFound",
            "StoreVersion",
            "SubscriptionExists",
            "SubscriptionNotFound",
            "TransactionAborted",
            "TransactionClosed",
            "TransactionError",
            "TransactionNotFound",
            "TransactionTimeout",
            "XidExists",
        ),
        "quire.file_dump.dump": ("dump",),
        "quire.file_salvage.salvage": ("salvage",),
        "quire.interface.consumer": ("Consumer",),
        "quire.interface.integration": (
            "Integration",
            "TransactionIntegration",
        ),
        "quire.interface.listening": ("Listener",),
        "quire.interface.namespaces": (
            "Admin",
            "Cron",
            "Delayed",
            "Listeners",
            "Prepared",
            "States",
        ),
        "quire.interface.schedules": (
            "ScheduleChanges",
            "ScheduleOptions",
        ),
        "quire.interface.sessions.answering": ("put_reply",),
        "quire.interface.sessions.reply": ("Reply",),
        "quire.interface.sessions.session": ("Session",),
        "quire.interface.starts": ("Start",),
        "quire.interface.store": ("Store",),
        "quire.interface.transaction": ("Transaction",),
        "quire.messages.message": ("Message",),
        "quire.messages.message_id": (
            "MessageId",
            "MessageIds",
            "PutId",
        ),
        "quire.messages.message_schema": (
            "HEADER_SCHEMA",
            "MESSAGE_SCHEMA",
        ),
        "quire.messages.payload_reader": ("PayloadReader",),
        "quire.messages.payload_writer": ("PayloadWriter",),
        "quire.messages.put_options": (
            "MessageOptions",
            "PutOptions",
            "StorePutOptions",
        ),
        "quire.moments": (
            "Duration",
            "Moment",
        ),
        "quire.opening": (
            "connect",
            "open",
            "serve",
        ),
        "quire.repeated_transactions": ("run_transaction",),
        "quire.reports.info": (
            "CatalogItem",
            "CompactReport",
            "Description",
            "Lease",
            "ListenerInfo",
            "Notice",
            "Piece",
            "PreparedInfo",
            "QueueInfo",
            "QueueRecord",
            "Report",
            "ScheduleInfo",
            "SubscriptionInfo",
            "TransactionInfo",
        ),
        "quire.reports.requests": (
            "RequestInfo",
            "RequestState",
            "SessionInfo",
        ),
        "quire.selectors.template": (
            "ANY",
            "Template",
        ),
        "quire.tls": ("Tls",),
        "quire.workers": ("Workers",),
    }
    _PLACE = {name: module for module, names in _PLACES.items() for name in names}
    _NAMES = sorted((*_MODULES, *_PLACE, "__version__"))
    __all__ = list(_NAMES)

    def __getattr__(name: str) -> object:
        """A public name: its module is imported when somebody first asks for it."""
        if name in _MODULES:
            return _load(f"quire.{name}")
        if name not in _PLACE:
            hint = f": import quire.{name} first" if name in _FURTHER else ""
            raise AttributeError(f"module 'quire' has no attribute {name!r}{hint}")
        value = globals()[name] = getattr(_load(_PLACE[name]), name)
        return value

    _late = None  # what imports modules, once it is there itself
    _first = _RLock()  # held over its import, so that no process is forked meanwhile

    def _load(name: str) -> object:
        """The module of that name: see LD2 and LD3 of `quire.libraries.late_imports`."""
        global _late  # noqa: PLW0603 - once it is there
        if _late is None:
            with _first:
                _late = _load_uninterrupted()
        return _late.load(name)

    def _load_uninterrupted() -> object:
        """Load what holds back signals, and has forks wait; both is done here until it is there."""
        came: list[int] = []
        handlers: list[tuple[int, object]] = []
        try:
            try:
                for number in range(1, _signal.NSIG):
                    handler = _signal.getsignal(number)
                    if callable(handler):
                        handlers.append((number, handler))
                        _signal.signal(number, lambda number, frame: came.append(number))
            except ValueError:  # it is another thread than the main one, in which none runs
                handlers.clear()
            with _first:
                import_module("logging")  # whose lock is to be taken for a fork after `_first`:
                _hold_back_forks()  # what was registered last is called first
                import_module("quire.calls.signal_safety")
                return import_module("quire.libraries.late_imports")
        finally:
            try:
                _put_back(handlers)
            except BaseException:
                _put_back(handlers)
                raise
            finally:
                _run(came)

    def _hold_back_forks() -> None:
        """Have each fork wait for `_first`, which a child would find taken for ever."""
        _os.register_at_fork(
            before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
        )

    def _before_fork() -> None:
        _first.acquire(timeout=20.0)  # seconds, as IMPORT_WAIT_SECONDS
        if _late is not None:  # perhaps only since this fork has begun
            _late.before_fork()

    def _after_fork() -> None:
        if _late is not None:
            _late.after_fork_in_parent()
        try:
            _first.release()
        except RuntimeError:  # it was not to be had
            return

    _hold_back_forks()

    def _put_back(handlers: list[tuple[int, object]]) -> None:
        for number, handler in handlers:
            _signal.signal(number, handler)

    def _run(came: list[int]) -> None:
        """Have the handlers of these signals run, also when one of them raises."""
        while came:
            try:
                _signal.raise_signal(came.pop(0))
            except BaseException:
                _run(came)
                raise

    def __dir__() -> list[str]:
        return sorted({*globals(), *_NAMES, *_FURTHER} - {"TYPE_CHECKING"})

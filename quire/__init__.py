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
| hear of messages that are put or leave | `Listeners`, `Listener`, `Notice` |
| have requests answered, each executed once | `Session`, of `store.session`; `Reply` |
| handle messages one after another, or in threads | `Consumer`, of `store.consume`; `Workers` |
| know what a message carries, or have a value made of it | `Message`, `Messages`; `quire.codecs` |
| keep messages in memory, or in a way of one's own | `QueueOptions.type`, `register_type` |
| have messages in another order than that of commits | `QueueOptions.order`, `register_order` |
| choose messages by what they say | `Template` |
| catch what goes wrong | `QuireError`, the root of all that is raised on purpose |
| use asyncio, or transactions with other systems | `quire.aio`; `quire.coordination` |
| read and write queues with Spark, or build graphs of steps | `quire.spark_graphs` |
| test on a simulated machine that crashes and fills up | `quire.testing` |
| read a store's files in words | `dump` |

Classes whose names end in Info, and Lease, Notice, Piece, QueueRecord and Report, are plain values
that the methods of a store give. Loggers stand below `quire`.
"""

from quire import codecs
from quire.batches.delivered_messages import Messages
from quire.calls.handlers import WorkerInfo
from quire.definitions.order import AttributeOrder, Order, SequenceOrder
from quire.definitions.order_code import OrderCode, register_order
from quire.definitions.properties import QueueChanges, QueueOptions
from quire.definitions.queue_types import QueueType, register_type
from quire.definitions.retry import Retry
from quire.errors import (
    AlreadyCommitted,
    AlreadyExists,
    CodecNotFound,
    CommitUnfinished,
    Conflict,
    ConnectionLost,
    Deadlock,
    DiskFull,
    InputChanged,
    InvalidArgument,
    InvalidSelector,
    KeyHeld,
    LockTimeout,
    NobodyReads,
    NoRoom,
    NotFound,
    OutboxMismatch,
    OutcomeUnknown,
    PayloadInvalid,
    PositionLost,
    QueueDisabled,
    QueueExists,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    QuireError,
    ReentrantCall,
    RemoteError,
    ReplyNotFound,
    RequestFailed,
    RequestTimeout,
    ScheduleExists,
    ScheduleNotFound,
    SessionFenced,
    StateConflict,
    StateFull,
    StepFailed,
    StepTimeout,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreLocked,
    StoreNotFound,
    StoreVersion,
    SubscriptionExists,
    SubscriptionNotFound,
    TransactionAborted,
    TransactionClosed,
    TransactionError,
    TransactionNotFound,
    TransactionTimeout,
    XidExists,
)
from quire.inspection.dumping import dump
from quire.interface.consumer import Consumer
from quire.interface.integration import Integration, TransactionIntegration
from quire.interface.listening import Listener
from quire.interface.namespaces import Admin, Cron, Delayed, Listeners, Prepared, States
from quire.interface.schedules import ScheduleChanges, ScheduleOptions
from quire.interface.sessions.answering import put_reply
from quire.interface.sessions.reply import Reply
from quire.interface.sessions.session import Session
from quire.interface.starts import Start
from quire.interface.store import Store
from quire.interface.transaction import Transaction
from quire.messages.message import HEADER_SCHEMA, MESSAGE_SCHEMA, Message
from quire.messages.message_id import MessageId, MessageIds, PutId
from quire.messages.payload_reader import PayloadReader
from quire.messages.payload_writer import PayloadWriter
from quire.messages.put_options import MessageOptions, PutOptions, StorePutOptions
from quire.moments import Duration, Moment
from quire.opening import connect, open, serve
from quire.reports.info import (
    CatalogItem,
    Lease,
    ListenerInfo,
    Notice,
    Piece,
    PreparedInfo,
    QueueInfo,
    QueueRecord,
    Report,
    ScheduleInfo,
    SubscriptionInfo,
    TransactionInfo,
)
from quire.reports.requests import RequestInfo, RequestState, SessionInfo
from quire.selectors.template import ANY, Template
from quire.workers import Workers

__version__ = "0.1.0"  # of the release

__all__ = [
    "ANY",
    "HEADER_SCHEMA",
    "MESSAGE_SCHEMA",
    "Admin",
    "AlreadyCommitted",
    "AlreadyExists",
    "AttributeOrder",
    "CatalogItem",
    "CodecNotFound",
    "CommitUnfinished",
    "Conflict",
    "ConnectionLost",
    "Consumer",
    "Cron",
    "Deadlock",
    "Delayed",
    "DiskFull",
    "Duration",
    "InputChanged",
    "Integration",
    "InvalidArgument",
    "InvalidSelector",
    "KeyHeld",
    "Lease",
    "Listener",
    "ListenerInfo",
    "Listeners",
    "LockTimeout",
    "Message",
    "MessageId",
    "MessageIds",
    "MessageOptions",
    "Messages",
    "Moment",
    "NoRoom",
    "NobodyReads",
    "NotFound",
    "Notice",
    "Order",
    "OrderCode",
    "OutboxMismatch",
    "OutcomeUnknown",
    "PayloadInvalid",
    "PayloadReader",
    "PayloadWriter",
    "Piece",
    "PositionLost",
    "Prepared",
    "PreparedInfo",
    "PutId",
    "PutOptions",
    "QueueChanges",
    "QueueDisabled",
    "QueueExists",
    "QueueFull",
    "QueueInUse",
    "QueueInfo",
    "QueueNotFound",
    "QueueOptions",
    "QueueRecord",
    "QueueType",
    "QuireError",
    "ReentrantCall",
    "RemoteError",
    "Reply",
    "ReplyNotFound",
    "Report",
    "RequestFailed",
    "RequestInfo",
    "RequestState",
    "RequestTimeout",
    "Retry",
    "ScheduleChanges",
    "ScheduleExists",
    "ScheduleInfo",
    "ScheduleNotFound",
    "ScheduleOptions",
    "SequenceOrder",
    "Session",
    "SessionFenced",
    "SessionInfo",
    "Start",
    "StateConflict",
    "StateFull",
    "States",
    "StepFailed",
    "StepTimeout",
    "Store",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFailed",
    "StoreLocked",
    "StoreNotFound",
    "StorePutOptions",
    "StoreVersion",
    "SubscriptionExists",
    "SubscriptionInfo",
    "SubscriptionNotFound",
    "Template",
    "Transaction",
    "TransactionAborted",
    "TransactionClosed",
    "TransactionError",
    "TransactionInfo",
    "TransactionIntegration",
    "TransactionNotFound",
    "TransactionTimeout",
    "WorkerInfo",
    "Workers",
    "XidExists",
    "__version__",
    "codecs",
    "connect",
    "dump",
    "open",
    "put_reply",
    "register_order",
    "register_type",
    "serve",
]

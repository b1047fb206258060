"""Calls at random of users with rights at random: nothing tells of what they may not see (CK3)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from quire.calls.call_table import CallRow
from quire.engine import EmbeddedStore as Store
from quire.errors import QuireError
from quire.messages.message import Message
from quire.remote.access import guarded_store
from quire.remote.access.granted_rights import GrantedRights
from quire.remote.access.guarded_store import GuardedStore
from quire.remote.access.shown_results import SHOWN
from quire.remote.wire.named_calls import REQUESTS
from quire.remote.wire.protocol import STEP
from tests.kit.users import grants_of

from .test_rights import User

SECRETS = (
    "secret1", "secret2", "secret3", "secret-alias", "secret-reader", "secret-schedule",
    "secret-sender", "secret-state", "secret-session", "secret-key", "secret payload",
)  # fmt: skip
NAMES = [
    *SECRETS, "bills", "news", "mine", "way", "new", "nothing", "news/reader", "#", "*", "secret*",
    "secret1@0", "secret2/secret-reader", "bills!x", "quire.sessions", "quire.listeners",
    "quire.session.secret-session", "quire.replies.secret-session", "", "'secret1'",
]  # fmt: skip
# None of them is on a secret, or makes a name that is one.
GRANTS = [
    "put queue:bills", "get queue:bills", "manage queue:bills", "admin queue:bills",
    "put,get,manage queue:mine", "get queue:news", "manage queue:new", "manage alias:way",
    "manage schedule:s", "put,get,manage state:state", "put,get session:s", "get,put graph:*",
]  # fmt: skip
OPTIONS = ("dead_letter", "max_deliveries", "verified_sender", "sender", "reply_to", "queue")
ELSEWHERE = ("", "begin", "commit", "failed", "read_chunk")  # which the server makes otherwise
WAITS = ("timeout", "seconds", "wait")


@pytest.fixture
def secretive(owner: Store) -> Store:
    """A store with secrets, of which some have to do with what is none."""
    for name, options in {
        "secret1": {"kind": "work"},
        "secret2": {"kind": "topic"},
        "bills": {"kind": "work", "dead_letter": "secret1", "max_deliveries": 2},
        "secret3": {"kind": "work", "dead_letter": "bills", "max_deliveries": 1},
        "news": {"kind": "topic"},
        "mine": {"kind": "work", "verified_sender": True},
    }.items():
        owner.create_queue(name, **options)  # type: ignore[arg-type]
    owner.subscribe("secret2", "secret-reader")
    owner.subscribe("news", "reader")
    owner.admin.create_alias("secret-alias", "secret1")
    owner.admin.create_alias("way", "bills")
    owner.cron.create("secret-schedule", "bills", "@daily", sender="secret-sender")
    owner.session("secret-session")
    with owner.transaction() as txn:
        txn.set_value("secret-state", "secret-key", b"secret payload")
        for name in ("secret1", "secret2"):
            txn.put(name, b"secret payload")
        for name in ("bills", "news", "mine"):
            txn.put(name, b"x")
    return owner


def any_value(rng: random.Random, depth: int = 0) -> Any:
    """Return a value as a client may send it."""
    kind = rng.random()
    if kind < 0.65 or depth > 1:
        return rng.choice(NAMES)
    if kind < 0.8:
        return rng.choice([0, 1, 2, -1, 1 << 40, None, True, False, 0.5, b"bytes"])
    if kind < 0.9:
        return [any_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    keys = [*NAMES, "name", *OPTIONS]
    return {rng.choice(keys): any_value(rng, depth + 1) for _ in range(rng.randrange(3))}


def any_arguments(rng: random.Random, row: CallRow) -> dict[str, Any]:
    """Return arguments of a call, which waits for nothing."""
    known = row.arguments()
    names = [name for name in sorted(known.names) if name in known.needed or rng.random() < 0.4]
    if known.takes_more:
        names += [name for name in OPTIONS if rng.random() < 0.2]
    found = {name: any_value(rng) for name in names}
    return found | {name: 0.0 for name in WAITS if name in known.names}


def texts_in(value: object) -> Iterator[str]:
    """Yield all texts, bytes as texts too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("latin-1")
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from texts_in(pair)
    elif isinstance(value, msgspec.Struct):
        yield from texts_in(msgspec.structs.asdict(value))
    elif isinstance(value, Message):
        yield from texts_in([value.queue, value.payload, value.sender, value.attributes])
    elif isinstance(value, list | tuple) or type(value).__name__ == "Messages":
        for each in value:  # type: ignore[attr-defined]
            yield from texts_in(each)


def answer(store: GuardedStore, kind: int, row: CallRow, arguments: dict[str, Any]) -> object:
    """Return what a user is answered: a result, or the words of an error."""
    try:
        if kind != STEP:
            return store.make(row, arguments)
        transaction = store.transaction()
        try:
            return transaction.make(row, arguments)
        finally:
            transaction.rollback()
    except QuireError as error:
        return str(error)


def leaks(store: Store, rng: random.Random, calls: int) -> list[tuple[str, str]]:
    """Make calls at random; return the secrets that answers tell, and the user has not said."""
    found = []
    rows = [(kind, row) for (kind, op), row in REQUESTS.items() if op not in ELSEWHERE]
    user = User()
    for n in range(calls):
        if n % 5 == 0:
            words = rng.sample(GRANTS, rng.randrange(1, 6))
            user.rights = GrantedRights(grants_of("; ".join(words)))
        kind, row = rng.choice(rows)
        arguments = any_arguments(rng, row)
        told = list(texts_in(answer(GuardedStore(store, user), kind, row, arguments)))
        own = list(texts_in(arguments))
        found += [
            (row.op, secret)
            for secret in SECRETS
            if any(secret in text for text in told) and not any(secret in text for text in own)
        ]
    return found


def secrets_of(store: Store) -> list[object]:
    """Return what nobody of them may change; but dead letters of `bills` may come."""
    queues = ("secret1", "secret2", "secret3", "quire.replies.secret-session")
    reports = [store.queue(name) for name in queues]
    return [
        [(info.name, info.dead_letter, info.subscriptions) for info in reports],
        [store.browse(name).payloads().count(b"secret payload") for name in queues],
        store.admin.aliases()["secret-alias"],
        [info.message for info in store.cron.list() if info.name == "secret-schedule"],
        [store.states.items(name) for name in ("secret-state", "quire.sessions")],
    ]


def test_nothing_tells_of_what_a_user_may_not_see(
    secretive: Store, rng: random.Random, rounds: int
) -> None:
    """No result and no error; and all of it is as it was."""
    before = secrets_of(secretive)
    assert leaks(secretive, rng, 60 * rounds) == []
    assert secrets_of(secretive) == before


def test_a_guard_that_shows_all_is_found(
    secretive: Store, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canary: results are shown as they are."""
    whole = dict.fromkeys(SHOWN, lambda user, arguments, found: found)
    monkeypatch.setattr(guarded_store, "SHOWN", whole)
    found: list[tuple[str, str]] = []
    for _ in range(20):
        found = leaks(secretive, rng, 200)
        if found:
            break
    assert found

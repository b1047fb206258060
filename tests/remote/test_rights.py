"""Rights of users: every call without its right is refused, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quire.block import encode_one
from quire.calls.call_table import CallRow, Facts
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import (
    InvalidArgument,
    NotAllowed,
    QueueExists,
    QueueFull,
    QueueNotFound,
    QuireError,
    TransactionNotFound,
)
from quire.graphs.kept_graphs import graph_state_name, step_state_name
from quire.ltds import new_id
from quire.messages.message_fields import Fields
from quire.remote.access.call_check import CallCheck, needs_of
from quire.remote.access.granted_rights import GrantedRights, Need
from quire.remote.access.guarded_store import GuardedStore
from quire.remote.access.state_names import name_of_state
from quire.remote.access.users_document import Grant, NameKind, Right
from quire.remote.wire.named_calls import REQUESTS
from tests.kit.limits import Limits
from tests.kit.users import as_user, grants_of

REFUSED = (NotAllowed, QueueNotFound, TransactionNotFound)
# Whose needs are no right on a name.
FREE = {"renew_lease", "read_fragment", "remove_fragments"}
ROWS = {
    f"{row.op} {kind}": row
    for (kind, _), row in REQUESTS.items()
    if row.facts.needs and row.name not in FREE
}

# For each argument that a row's needs name, something that is there.
ARGUMENTS: dict[str, Any] = {
    "queue": "orders",
    "name": "orders",
    "old": "orders",
    "new": "bills",
    "names": ["orders", "bills"],
    "source": "orders",
    "starts": {"news": "earliest"},
    "positions": {"news/reader": 0},
    "queues": [{"name": "new", "dead_letter": "dead", "max_deliveries": 1}],
    "to": "bills",
    "keys": ["key"],
    "key": "key",
    "dead_letter": "dead",
    "reply_to": "replies",
    "sender": None,
    "payload": b"",
    "cron": "@daily",
    "transaction_id": 1,
    "ranges": [("orders", 0, 1), ("bills", 0, 0)],
    "seconds": 1.0,
    "writer": None,
}
BY_ROW: dict[str, dict[str, Any]] = {
    "cron.create": {"name": "nightly"},
    "cron.alter": {"name": "daily", "queue": "bills"},
    "cron.drop": {"name": "daily"},
    "admin.create_alias": {"name": "alias"},
    "admin.drop_alias": {"name": "alias"},
    "claim_for": {"names": [("news", "reader")]},
    "states.get": {"name": "state"},
    "states.items": {"name": "state"},
    "states.drop": {"name": "state"},
    "get_value": {"name": "state"},
    "integration.when_ready": {"source": "orders@0"},
    "integration.lease_names": {"names": ["news/reader"]},
    "integration.read_places": {"places": []},
    "integration.file_size": {"ltds_id": 1},
    "integration.write_fragment": {"ltds_id": 1 << 62, "offset": 0, "data": bytes(4096)},
}


class User:
    """A user whose rights are at hand."""

    def __init__(self, *grants: Grant) -> None:
        self.name = "anna"
        self.rights = GrantedRights(grants)

    def note_call(self, call: str, needs: object, outcome: str) -> None:
        """Nobody reads it."""

    def note_refusal(self, need: Need) -> None:
        """Nobody reads it."""


def arguments_of(row: CallRow) -> dict[str, Any]:
    """Return arguments for a row: those that its needs name, and the others that it demands."""
    named = {need.argument for need in needs_of(row)} & row.arguments().names
    if row.arguments().takes_more:
        named |= {need.argument for need in needs_of(row) if need.argument}
    wanted = named | (set(row.arguments().needed) & ARGUMENTS.keys())
    if row.op == "alter_queue":
        wanted.add("dead_letter")
    found = {name: ARGUMENTS[name] for name in sorted(wanted)}
    return found | BY_ROW.get(row.op, {})


def grant(need: Need) -> Grant:
    """Return the grant of a need alone; whatever a name has, it is seen by it."""
    right = Right.MANAGE if need.right is None else need.right
    return Grant((right,), need.kind.value, need.name)


@pytest.fixture
def filled(owner: Store) -> Store:
    """A store with one of each."""
    for name in ("orders", "bills", "dead", "replies"):
        owner.create_queue(name)
    owner.create_queue("known", dedup_count=10)
    owner.create_queue("news", kind="topic")
    owner.subscribe("news", "reader")
    owner.admin.create_alias("alias", "orders")
    owner.cron.create("daily", "orders", "@daily")
    with owner.transaction() as txn:
        txn.put("orders", b"1")
        txn.set_value("state", "key", b"value")
    return owner


def state_of(store: Store) -> object:
    """Return what differs once anything was changed or begun."""
    checked = store.admin.verify(contents=True).checked
    transactions = [info.id for info in store.admin.transactions()]
    return checked, transactions


def call(store: GuardedStore, row: CallRow, arguments: dict[str, Any], *, is_step: bool) -> None:
    """Make a call, as the server does."""
    if is_step:
        transaction = store.transaction()
        try:
            transaction.make(row, arguments)
        finally:
            transaction.rollback()
    else:
        store.make(row, arguments)


@pytest.mark.parametrize("name", ROWS)
def test_a_call_without_one_of_its_rights_is_refused_and_changes_nothing(
    filled: Store, name: str
) -> None:
    """For each row and each right that it needs: with all others, and with none, it is refused.

    With exactly those it needs, it is allowed. Nothing is looked for before that (CK2).
    """
    row = ROWS[name]
    arguments = arguments_of(row)
    everything = GrantedRights([Grant(tuple(Right), "*", "*")])
    check = CallCheck(everything, GuardedStore(filled, User()))
    check.check_call(row, arguments)
    needs = sorted(check.allowed, key=str)
    assert needs
    before = state_of(filled)
    is_step = name.endswith(" 9")
    for missing in [None, *needs]:
        others = [] if missing is None else [grant(need) for need in needs if need != missing]
        user = User(*others)
        if missing is not None and user.rights.allows(missing):
            continue  # another right that it needs contains it
        with pytest.raises(REFUSED) as error:
            call(GuardedStore(filled, user), row, arguments, is_step=is_step)
        if isinstance(error.value, NotAllowed):
            assert "right" in str(error.value)
    assert state_of(filled) == before
    exactly = GrantedRights(grant(need) for need in needs)
    CallCheck(exactly, GuardedStore(filled, User())).check_call(row, arguments)


def test_every_row_says_what_it_needs() -> None:
    """Also those with an encoding of their own (TC2)."""
    assert [row.op for row in REQUESTS.values() if row.facts.needs is None] == []
    free = {op for (_, op), row in REQUESTS.items() if not (row.facts.needs or row.facts.shows)}
    assert free == {
        "", "begin", "commit", "extend", "failed", "integration.end_lease", "mark_moved",
        "read_chunk", "reject", "sync", "unget", "unmark_moved",
    }  # fmt: skip


@pytest.mark.parametrize("needs", [None, "own queue:name", "put table:name", "put"])
def test_a_row_that_does_not_say_what_it_needs_cannot_be_served(needs: str | None) -> None:
    """Nor one that says it in words which nobody knows: a server does not begin (CK1)."""
    row = CallRow(Store.sync, Facts(True, True, needs=needs))
    with pytest.raises(TypeError):
        needs_of(row)


def test_of_a_queue_that_may_not_be_seen_nothing_is_told(filled: Store) -> None:
    """Every call says of it what it says of one that is not there, word for word (CK3)."""
    filled.create_queue("secret")
    filled.admin.create_alias("way", "secret")
    user = User(Grant.of("put,get,browse,manage", "queue:bills"))
    guarded = GuardedStore(filled, user)
    for name, row in ROWS.items():
        needs = needs_of(row)
        if not any(need.argument in ("queue", "source", "name") for need in needs):
            continue
        answers = []
        for queue in ("secret", "way", "nothing", "secre"):
            argument = next(n.argument for n in needs if n.argument in ("queue", "source", "name"))
            with pytest.raises(QuireError) as error:
                call(
                    guarded,
                    row,
                    arguments_of(row) | {argument: queue},
                    is_step=name.endswith(" 9"),
                )
            answers.append((type(error.value), str(error.value).replace(queue, "?")))
        assert len(set(answers)) == 1, (name, answers)


def test_errors_name_nothing_that_may_not_be_seen(filled: Store) -> None:
    """An alias's queue, what is in the way of a drop, a near name of a schedule."""
    filled.create_queue("secret")
    filled.admin.create_alias("taken", "secret")
    filled.create_queue("first", dead_letter="dead", max_deliveries=1)
    user = User(*grants_of("manage queue:t*; manage queue:dead; manage schedule:*"))
    guarded = GuardedStore(filled, user)
    calls: list[Callable[[], object]] = [
        lambda: guarded.create_queue("taken"),
        lambda: guarded.admin.create_queues(["two", "taken"]),
        lambda: guarded.drop_queue("dead"),
        lambda: guarded.cron.drop("dail"),
    ]
    for call in calls:
        with pytest.raises(QuireError) as error:
            call()
        words = str(error.value)
        assert not [name for name in ("secret", "first", "daily") if name in words], words
    user.rights = GrantedRights(grants_of("admin *:*"))
    with pytest.raises(QueueExists, match="secret"):
        guarded.create_queue("taken")


def test_a_reply_queue_s_alias_tells_nothing_of_its_queue(filled: Store) -> None:
    """The refusal names what the user has said, as it does where there is no such queue."""
    filled.create_queue("secret")
    filled.admin.create_alias("way", "secret")
    guarded = GuardedStore(filled, User(*grants_of("put queue:bills; manage schedule:*")))
    answers = set()
    for name in ("way", "nothing", "secret"):
        with pytest.raises(NotAllowed) as error:
            guarded.put("bills", b"x", reply_to=name)
        with pytest.raises(NotAllowed) as again:
            guarded.cron.create("mine", "bills", "@daily", reply_to=name)
        assert str(error.value) == str(again.value)
        answers.add(str(error.value).replace(name, "?"))
    assert len(answers) == 1


def test_errors_that_are_no_refusal_name_nothing_that_may_not_be_seen(filled: Store) -> None:
    """A dead-letter queue, who gives it letters, a schedule; what the user says himself is told."""
    filled.create_queue("secret", schema="id bigint")
    filled.create_queue("rows", schema="id bigint", dead_letter="secret", max_deliveries=1)
    filled.create_queue("feeding", dead_letter="bills", max_deliveries=1)
    filled.cron.create("mine", "replies", "@daily", sender="bert")
    filled.cron.create("hers", "orders", "@daily", sender="bert")
    user = User(*grants_of("manage,browse queue:rows; manage queue:bills; manage queue:replies"))
    guarded = GuardedStore(filled, user)
    calls: list[Callable[[], object]] = [
        lambda: guarded.alter_queue("rows", schema="id bigint, more bigint"),
        lambda: guarded.alter_queue("bills", verified_sender=True),
        lambda: guarded.alter_queue("replies", verified_sender=True),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument) as error:
            call()
        words = str(error.value)
        assert not [name for name in ("secret", "feeding", "'mine'") if name in words], words
        assert "'(not shown)'" in words
    for name in ("secret", "nothing"):  # neither is there for this user, as the error says
        with pytest.raises(InvalidArgument, match=f"'{name}'"):
            guarded.browse("rows", where=f"'{name}' = = 1")
    user.rights = GrantedRights(grants_of("admin *:*"))
    with pytest.raises(InvalidArgument, match="'secret'"):
        calls[0]()


def test_a_full_dead_letter_queue_is_not_named(owner: Store) -> None:
    """To who puts, and may not see it; the error is still one that has a remedy."""
    owner.create_queue("secret", kind="work", max_messages=1)
    owner.create_queue(
        "orders", kind="work", max_messages=1, overflow="dead_letter", dead_letter="secret"
    )
    for _ in range(2):
        owner.put("orders", b"x")
    guarded = GuardedStore(owner, User(*grants_of("put queue:orders")))
    for put in (guarded.put_now, guarded.put):
        with pytest.raises(QueueFull) as error:
            put("orders", b"x")
        assert "secret" not in str(error.value)
        assert error.value.has_remedy


def test_an_argument_of_another_form_is_refused_by_name(filled: Store) -> None:
    """Also where a right is looked for in it."""
    guarded = GuardedStore(filled, User(*grants_of("get queue:*")))
    wrong: list[Any] = [[[]], [5], 5, "orders", [None]]
    for names in wrong:
        with pytest.raises(InvalidArgument):
            guarded.make(ROWS["claim_for 1"], {"names": names})


def test_what_a_transaction_has_to_do_with_is_bounded(filled: Store, limits: Limits) -> None:
    """Also names of what is not there; what it has asked for before goes on."""
    limits(MAX_NOTED_NEEDS=3)
    guarded = GuardedStore(filled, User(*grants_of("get queue:*")))
    with guarded.transaction() as txn:
        for name in ("nothing-1", "nothing-2"):
            with pytest.raises(QueueNotFound):
                txn.get(name)
        assert txn.get("orders") is not None
        with pytest.raises(InvalidArgument, match="at most 3 names"):
            txn.get("nothing-3")
        assert txn.get("orders") is None  # there is no other one


def test_listings_show_what_may_be_seen(filled: Store) -> None:
    """Queues, names, aliases, schedules, states, and a dead letter queue only by name."""
    filled.alter_queue("bills", dead_letter="dead", max_deliveries=3)
    user = User(*grants_of("put queue:bills; browse state:other"))
    guarded = GuardedStore(filled, user)
    [bills] = guarded.queues()
    assert (bills.name, bills.dead_letter) == ("bills", None)
    user.rights = GrantedRights(grants_of("admin queue:bills; admin queue:bell"))
    assert guarded.alter_queue("bills", text="of May").dead_letter is None
    assert guarded.admin.rename_queue("bills", "bell").dead_letter is None
    assert guarded.admin.rename_queue("bell", "bills").dead_letter is None
    user.rights = GrantedRights(grants_of("put queue:bills; browse state:other"))
    assert guarded.admin.queue_names() == ["bills"]
    assert guarded.admin.aliases() == {}
    assert guarded.cron.list() == []
    assert guarded.states.names() == []
    user.rights = GrantedRights(grants_of("browse queue:*; browse schedule:*; browse state:*"))
    assert [info.name for info in guarded.queues()] == [info.name for info in filled.queues()]
    assert guarded.admin.aliases() == {"alias": "orders"}
    assert [info.name for info in guarded.cron.list()] == ["daily"]
    assert guarded.states.names() == ["state"]


def test_states_of_the_house_belong_to_what_they_keep() -> None:
    """A session, a listener and a graph, each by its own name."""
    assert name_of_state("quire.sessions", "anna") == (NameKind.SESSION, "anna")
    assert name_of_state("quire.session.anna", "1") == (NameKind.SESSION, "anna")
    assert name_of_state("quire.listeners", "anna") == (NameKind.LISTENER, "anna")
    assert name_of_state(graph_state_name("flow"), "key") == (NameKind.GRAPH, "flow")
    assert name_of_state(step_state_name("flow", "one")) == (NameKind.GRAPH, "flow")
    assert name_of_state("mine", "quire.sessions") == (NameKind.STATE, "mine")


def test_transactions_are_seen_and_ended_by_who_began_them(filled: Store) -> None:
    """Others are to them as if they were not there; who has admin on the store sees all."""
    users = [User(*grants_of("put queue:*")) for _ in range(2)]
    users[1].name = "bert"
    anna, bert = (GuardedStore(filled, user) for user in users)
    own, his, hers = (
        filled.transaction(),
        bert.transaction(owner="b"),
        anna.transaction(owner="a 1"),
    )
    for txn in (own, his, hers):
        txn.put("orders", b"1")
    [info] = anna.admin.transactions()
    assert (info.id, info.owner) == (hers.id, "a 1")
    assert anna.admin.transaction(hers.id).owner == "a 1"
    for other in (own.id, his.id, 10**9):
        for call in (anna.admin.abort, anna.admin.transaction):
            with pytest.raises(TransactionNotFound, match="of this user is open"):
                call(other)
    anna.admin.abort(hers.id)
    assert (own.state, his.state, hers.state) == ("open", "open", "rolled back")
    users[1].rights = GrantedRights(grants_of("admin store:*"))
    owners = [info.owner for info in bert.admin.transactions()]
    assert len(owners) == 2
    assert "b" in owners
    bert.admin.abort(own.id)
    his.rollback()


def test_an_explanation_names_what_its_user_sees(filled: Store) -> None:
    """A user's own transaction in the own words; of those of others just that there is one."""
    filled.create_queue("jobs", max_deliveries=1, dead_letter="dead")
    ids = filled.put_many("jobs", [b"1", b"2", b"3"])
    grants = grants_of("get,browse queue:jobs")
    whole = [*grants_of("admin store:*"), *grants_of("get,browse queue:*")]
    anna, admin = (GuardedStore(filled, User(*some)) for some in (grants, whole))
    with filled.transaction(owner="the house") as own, anna.transaction(owner="a 1") as hers:
        assert own.get("jobs") is not None
        assert hers.get("jobs") is not None
        found = anna.admin.explain("jobs", ids[0])
        assert (found.reason, found.transaction, found.owner) == ("in flight", None, None)
        assert "the house" not in found.text
        assert admin.admin.explain("jobs", ids[0]).transaction == own.id
        found = anna.admin.explain("jobs", ids[1])
        assert (found.transaction, found.owner) == (hers.id, "a 1")
        own.rollback()
        hers.rollback()
    with filled.transaction() as txn:
        message = txn.get("jobs")
        assert message is not None
        txn.reject(message)
    letter = filled.browse("dead")[0].id
    found = anna.admin.explain("jobs", letter)
    assert (found.reason, found.queue) == ("not there", None)
    assert admin.admin.explain("jobs", letter).reason == "dead letter"
    with pytest.raises(QueueNotFound):
        anna.admin.explain("orders")


# Detours, over a connection -----------------------------------------------------------------------


@contextmanager
def unchanged(owner: Store) -> Iterator[None]:
    """Show that what is refused has left the store as it was."""
    before = owner.admin.verify(contents=True).checked
    yield
    assert owner.admin.verify(contents=True).checked == before


def put_moved(store: Any) -> None:
    """Put a message as if it were moved, with a reply queue of its own choice."""
    with store.transaction() as txn:
        txn.put_moved("bills", b"x", {"reply_to": "orders"})


def put_block(store: Any) -> None:
    """Put a block with a reply queue in it."""
    with store.transaction() as txn:
        txn.put_many("bills", [b"1", b"2"])
        txn.integration.put_block("bills", bytes(encode_one(b"x", Fields(reply_to="orders"))))


def move(store: Any) -> None:
    """Move what is there, in a transaction."""
    with store.transaction() as txn:
        txn.move("orders", "bills")


def consume_pattern(store: Any) -> None:
    """Take from whatever a pattern names."""
    store.get("#")


def set_value(name: str, key: str) -> Callable[[Any], None]:
    """Return a transaction that sets a value."""

    def run(store: Any) -> None:
        with store.transaction() as txn:
            txn.set_value(name, key, b"x")

    return run


def adopt(store: Any) -> None:
    """Make a file in the store's directory one's own."""
    with store.transaction() as txn:
        txn.integration.adopt("bills", new_id(OsEnv(), foreign=True))


def enter(store: Any) -> None:
    """Take a key of the ledger that another user's commits have."""
    with store.transaction() as txn:
        txn.put("bills", b"x")
        txn.enter("theirs", 9)


def put_in_transaction(store: Any) -> None:
    """Put among puts that are allowed."""
    with store.transaction() as txn:
        txn.put("bills", b"x")
        txn.put("orders", b"x")


DETOURS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "a put": ("browse queue:orders", lambda s: s.put("orders", b"x")),
    "a put with a header": ("browse queue:orders", lambda s: s.put("orders", b"x", group=1)),
    "a put in a transaction": ("put queue:bills; browse queue:orders", put_in_transaction),
    "many puts": ("browse queue:orders", lambda s: s.put_many("orders", [b"x"] * 3)),
    "a put of a stream": ("browse queue:orders", lambda s: s.put_stream("orders", [b"x" * 9])),
    "a put with a request id": (
        "browse queue:known",
        lambda s: s.put("known", b"x", request_id="1"),
    ),
    "many puts with request ids": (
        "browse queue:known",
        lambda s: s.put_many("known", [b"x"] * 2, request_ids=["1", "2"]),
    ),
    "an alias to it": ("put alias:*; put queue:alias", lambda s: s.put("alias", b"x")),
    "an alias of one's own": (
        "manage alias:*; put,get queue:mine",
        lambda s: s.admin.create_alias("mine", "orders"),
    ),
    "an alias given to another queue": (
        "manage queue:bills",
        lambda s: s.admin.create_alias("alias", "bills", replace=True),
    ),
    "another name for it": (
        "manage queue:orders; manage,get queue:mine",
        lambda s: s.admin.rename_queue("orders", "mine"),
    ),
    "a schedule that puts there": (
        "manage schedule:*; browse queue:orders",
        lambda s: s.cron.create("mine", "orders", "@daily"),
    ),
    "what another's schedule puts": (
        "manage schedule:daily; put queue:bills",
        lambda s: s.cron.alter("daily", payload=b"x"),
    ),
    "a schedule with replies": (
        "manage schedule:*; put queue:bills",
        lambda s: s.cron.create("mine", "bills", "@daily", reply_to="orders"),
    ),
    "dead letters to it": (
        "manage,get queue:bills",
        lambda s: s.alter_queue("bills", dead_letter="orders", max_deliveries=1),
    ),
    "dead letters of it": (
        "manage queue:orders; put,get queue:bills",
        lambda s: s.alter_queue("orders", dead_letter="bills", max_deliveries=1),
    ),
    "dead letters of a new one": (
        "manage,get queue:mine",
        lambda s: s.create_queue("mine", dead_letter="orders", max_deliveries=1),
    ),
    "dead letters of a new one to a new one": (
        "manage,get queue:mine; manage queue:letters",
        lambda s: s.admin.create_queues(
            ["letters", {"name": "mine", "dead_letter": "letters", "max_deliveries": 1}]
        ),
    ),
    "a move out of it": ("browse queue:orders; put queue:bills", move),
    "a move into it": ("get queue:orders; browse queue:bills", move),
    "a move of all of it": (
        "browse queue:orders; put queue:bills",
        lambda s: s.admin.move("orders", "bills"),
    ),
    "a redrive out of it": (
        "browse queue:orders; put queue:*",
        lambda s: s.admin.redrive("orders", to="bills"),
    ),
    "a redrive to wherever letters say": (
        "get queue:orders; put queue:bills*",
        lambda s: s.admin.redrive("orders"),
    ),
    "a state": ("put,manage state:mine", set_value("state", "key")),
    "a session's state": ("put state:*", set_value("quire.session.anna", "1")),
    "the list of sessions": ("put state:*", set_value("quire.sessions", "anna")),
    "a listener's registration": (
        "put,get queue:orders; put listener:mine",
        set_value("quire.listeners", "theirs"),
    ),
    "a graph's state": ("put state:*", set_value("graph.flow", "pause/one")),
    "all sessions": (
        "manage session:mine; manage state:*",
        lambda s: s.states.drop("quire.sessions"),
    ),
    "a key of the ledger": ("put queue:bills; put state:mine", enter),
    "a listener": ("put queue:orders", lambda s: s.listeners.poll_notices("orders", 0)),
    "waiting for it": ("put queue:orders", lambda s: s.get("orders", 5)),
    "a selector": ("browse queue:orders", lambda s: s.get("orders", where="priority = 0")),
    "an id": ("browse queue:orders", lambda s: s.get("orders", id=1)),
    "an index": (
        "browse,put,get queue:orders",
        lambda s: s.alter_queue("orders", indexed=["sender"]),
    ),
    "a pattern": ("get queue:bills; get queue:news*", consume_pattern),
    "a reply queue": ("put queue:bills", lambda s: s.put("bills", b"x", reply_to="orders")),
    "a reply queue by its alias": (
        "put queue:bills; get queue:alias",
        lambda s: s.put("bills", b"x", reply_to="alias"),
    ),
    "a reply queue of many": (
        "put queue:bills",
        lambda s: s.put_many("bills", pa.record_batch({"payload": [b"x"], "reply_to": ["orders"]})),
    ),
    "a reply queue of a stream": (
        "put queue:bills",
        lambda s: s.put_stream("bills", [b"x" * 100_000], reply_to="orders"),
    ),
    "a reply queue of a block": ("put queue:bills", put_block),
    "a reply queue of what is moved": ("put queue:bills", put_moved),
    "a file of another process": (
        "get,browse queue:bills",
        adopt,
    ),
    "a lease": (
        "put queue:orders; browse queue:bills",
        lambda s: s.integration.lease_many([("bills", 0, 0), ("orders", 0, 1)]),
    ),
    "a lease by its alias": (
        "browse queue:alias; browse alias:*",
        lambda s: s.integration.lease_many([("alias", 0, 1)]),
    ),
    "a lease of its reader": (
        "browse queue:news",
        lambda s: s.integration.lease_names(["news/reader"]),
    ),
    "a lease of all": (
        "get,browse,put,manage *:*",
        lambda s: s.integration.lease_state(),
    ),
    "a place of it": (
        "put queue:orders; browse queue:bills",
        lambda s: s.integration.read_places("orders", [("journal", 0, 0, 1)]),
    ),
    "a part of a file for it": (
        "browse queue:orders; put queue:bills",
        lambda s: s.integration.write_fragment("orders", 1 << 62, 0, bytes(4096)),
    ),
    "a prepared transaction": ("get,browse,put,manage *:*", lambda s: s.prepared.commit("x")),
    "a subscription": ("browse queue:news", lambda s: s.subscribe("news", "mine")),
    "another's subscription": ("get queue:news", lambda s: s.unsubscribe("news", "reader")),
    "the whole store": ("get,browse,put,manage *:*", lambda s: s.admin.switch(puts=False)),
}


@pytest.mark.parametrize("name", DETOURS)
def test_a_detour_is_refused_and_changes_nothing(filled: Store, tmp_path: Path, name: str) -> None:
    """Each with the rights that one may believe to be enough."""
    words, action = DETOURS[name]
    with as_user(filled, tmp_path, words) as store, unchanged(filled), pytest.raises(REFUSED):
        action(store)


@pytest.mark.parametrize("name", DETOURS)
def test_with_all_rights_no_detour_is_refused(filled: Store, tmp_path: Path, name: str) -> None:
    """So what is refused above is refused for the right that is missing."""
    _, action = DETOURS[name]
    with as_user(filled, tmp_path, "admin *:*") as store:
        failure: QuireError | None = None
        try:
            action(store)
        except QuireError as error:
            failure = error
        assert not isinstance(failure, NotAllowed | QueueNotFound), failure

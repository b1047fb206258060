"""Users of a served store: who is let in, and what a change of their file does to connections."""

from __future__ import annotations

import datetime as dt
import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    NotAllowed,
    NotFound,
    QueueNotFound,
    QuireError,
)
from quire.remote.access.refusals import Refusals
from quire.remote.access.tokens import UserToken
from quire.remote.access.user_access import UserAccess
from quire.remote.access.users_document import TokenEntry
from quire.remote.limits import (
    FREE_REFUSALS,
    MAX_REFUSED_ADDRESSES,
    REFUSALS_SECONDS,
    REFUSED_PAUSE_SECONDS,
)
from quire.remote.ownership.shared_store import SharedStore
from quire.remote.server.network_entrance import places_to_listen
from quire.tls import Tls
from tests.kit.limits import Limits
from tests.kit.network import certificates
from tests.kit.users import Users, serving_users
from tests.kit.waiting import SECONDS, eventually


@pytest.fixture
def users(tmp_path: Path) -> Users:
    """A file with anna, who has rights on one queue."""
    users = Users(tmp_path)
    users.grant("anna", "put,get queue:orders")
    return users


@pytest.fixture
def url(owner: Store, users: Users) -> Iterator[str]:
    """The port at which users are let in, without TLS, of this machine."""
    owner.create_queue("orders")
    with serving_users(owner, users) as found:
        yield found


def token_of(users: Users, name: str = "anna") -> str:
    """Return a user's token."""
    return users.tokens[name].text


def refusal(action: Callable[[], object]) -> str:
    """Return the words of a refusal."""
    with pytest.raises(NotAllowed) as error:
        action()
    return str(error.value)


def test_a_user_is_let_in_by_a_token_and_nobody_else(url: str, users: Users) -> None:
    """Without one, of nobody, or with another secret: refused with the same words (UA1)."""
    with quire.open(url, token=token_of(users)) as store:
        store.put("orders", b"1")
    anna = users.tokens["anna"]
    other = UserToken.draw(OsEnv()).text
    wrong = f"quire_{anna.key_id}_{other.split('_', 2)[2]}"
    words = {refusal(lambda: quire.open(url))}
    for token in (other, wrong):
        words.add(refusal(lambda token=token: quire.open(url, token=token)))  # type: ignore[misc]
    assert len(words) == 1
    assert "anna" not in words.pop()


def test_what_is_no_token_is_refused_before_it_is_sent(url: str) -> None:
    """And is not shown; one without a server to send it to is refused too."""
    with pytest.raises(InvalidArgument) as error:
        quire.open(url, token="hush-hush")
    assert "hush" not in str(error.value)
    with pytest.raises(InvalidArgument, match="without token"):
        quire.open("a path", token="hush-hush")


def test_a_token_is_shown_by_nothing(url: str, users: Users, caplog: Any) -> None:
    """By no `repr` of a store, no error, no traceback, no log, on both sides."""
    token = token_of(users)
    secret = token.split("_", 2)[2]
    shown = []
    with caplog.at_level(logging.DEBUG), quire.open(url, token=token) as store:
        shown += [repr(store), str(vars(store)), repr(store.transaction())]
        with pytest.raises(QuireError) as error:
            store.get("nothing")
        shown += traceback.format_exception(error.value)
    assert secret not in "".join([*shown, caplog.text])


def test_the_token_is_found_in_the_environment_and_in_the_file_of_tokens(
    url: str, users: Users, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The argument first, then QUIRE_TOKEN, then the line of the server in a file of mode 0600."""
    monkeypatch.setenv("HOME", str(tmp_path))
    kept = tmp_path / ".config" / "quire" / "tokens"
    kept.parent.mkdir(parents=True)
    place = url.removeprefix("quire://")
    kept.write_text(f"# servers\nother:7400 none\n\n{place} {token_of(users)}\n")
    kept.chmod(0o600)
    quire.open(url).close()
    kept.chmod(0o640)
    with pytest.raises(InvalidArgument, match="chmod 600") as error:
        quire.open(url)
    assert token_of(users) not in str(error.value)
    monkeypatch.setenv("QUIRE_TOKEN", token_of(users))
    quire.open(url).close()
    quire.connect(url).close()
    with pytest.raises(NotAllowed):
        quire.open(url, token=UserToken.draw(OsEnv()).text)


def test_the_store_s_own_user_needs_no_token(owner: Store, url: str) -> None:
    """Who joins by the store's path is the store's user, and has all rights."""
    owner.create_queue("secret")
    assert isinstance(owner, SharedStore)
    with quire.connect(owner.share(OsEnv()).wait_started()) as store:
        store.put("secret", b"1")


def test_two_tokens_are_valid_at_once_and_one_that_expires_is_not(
    owner: Store, url: str, users: Users
) -> None:
    """So a token is replaced without a moment in which none is valid."""
    first, second = token_of(users), UserToken.draw(OsEnv())
    past = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)

    def give(expires: dt.datetime | None) -> None:
        entry = TokenEntry(second.key_id, second.digest(), expires)

        def change(document: Any) -> Any:
            anna = document.users["anna"]
            anna = msgspec.structs.replace(anna, tokens=(anna.tokens[0], entry))
            return msgspec.structs.replace(document, users={"anna": anna})

        users.file.change(change)

    give(None)
    eventually(lambda: is_let_in(url, second.text))
    assert is_let_in(url, first)
    give(past)
    eventually(lambda: not is_let_in(url, second.text))
    assert "expired" in refusal(lambda: quire.open(url, token=second.text))
    assert is_let_in(url, first)


def is_let_in(url: str, token: str) -> bool:
    """Return True if the token lets in."""
    try:
        quire.open(url, token=token).close()
    except NotAllowed:
        return False
    return True


def test_locking_ends_what_is_open_and_what_waits(owner: Store, url: str, users: Users) -> None:
    """A get that waits, an open transaction and the next call; unlocking lets in again (UA2)."""
    owner.create_queue("others")
    users.grant("bert", "get queue:others")
    ended: list[QuireError] = []
    eventually(lambda: is_let_in(url, token_of(users, "bert")))
    with (
        quire.open(url, token=token_of(users)) as store,
        quire.open(url, token=token_of(users, "bert")) as other,
    ):
        opened = store.transaction()
        opened.put("orders", b"never")
        opened.count("orders")  # it is at the owner by then

        def wait() -> None:
            try:
                store.get("orders", SECONDS)
            except QuireError as error:
                ended.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: len(owner.admin.transactions()) == 2)
        users.grant("anna", "put,get queue:orders", locked=True)
        waiting.join(SECONDS)
        assert isinstance(ended[0], NotAllowed | ConnectionLost)
        eventually(lambda: owner.admin.transactions() == [])
        with pytest.raises((NotAllowed, ConnectionLost)):
            opened.commit()
        assert "locked" in refusal(lambda: store.put("orders", b"x"))
        assert other.get("others") is None  # who is not locked goes on
        users.grant("anna", "put,get queue:orders")
        eventually(lambda: is_let_in(url, token_of(users)))
        assert len(owner.browse("orders")) == 0
        eventually(lambda: not raises(lambda: store.put("orders", b"again")))
    assert [message.payload for message in owner.browse("orders")][:1] == [b"again"]


def test_who_is_unlocked_comes_back_after_a_short_pause(
    url: str, users: Users, limits: Limits
) -> None:
    """Not after one that is as long as those of processes that cannot own a store."""
    limits(CANDIDATE_PAUSE_SECONDS=1e5, LONGEST_PAUSE_SECONDS=1e6, REFUSED_RECONNECT_SECONDS=0.05)
    with quire.open(url, token=token_of(users)) as store:
        users.grant("anna", "put queue:orders", locked=True)
        eventually(lambda: raises(lambda: store.put("orders", b"x")))
        assert "locked" in refusal(lambda: store.put("orders", b"x"))
        users.grant("anna", "put queue:orders")
        eventually(lambda: not raises(lambda: store.put("orders", b"x")))


def test_a_change_of_rights_holds_for_open_connections_and_transactions(
    owner: Store, url: str, users: Users
) -> None:
    """The next call is refused, a waiting get gets nothing, a commit takes no effect (GS2)."""
    with quire.open(url, token=token_of(users)) as store:
        txn = store.transaction()
        txn.put("orders", b"never")
        txn.count("orders")
        found: list[object] = []

        def wait() -> None:
            try:
                found.append(store.get("orders", SECONDS))
            except NotAllowed as error:
                found.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: len(owner.admin.transactions()) == 2)
        users.grant("anna", "browse queue:orders")

        def is_refused() -> bool:
            try:
                store.put("orders", b"before")
            except NotAllowed:
                return True
            return False

        eventually(is_refused)
        count = len(owner.browse("orders"))
        owner.put("orders", b"not for anna")
        waiting.join(SECONDS)
        assert not waiting.is_alive()
        with pytest.raises(NotAllowed, match="right put on queue 'orders'"):
            txn.commit()
        txn.rollback()
        assert b"never" not in [message.payload for message in owner.browse("orders")]
        assert len(owner.browse("orders")) >= count
        users.grant("anna", "put queue:orders")
        eventually(lambda: not is_refused())


def test_a_wrong_file_leaves_the_users_before_in_force(
    owner: Store, url: str, users: Users, caplog: pytest.LogCaptureFixture
) -> None:
    """And so does one that is gone, or that others may write; the log says why (UA3)."""
    path = Path(users.file.path)
    right = path.read_bytes()
    with quire.open(url, token=token_of(users)) as store:
        for spoil, words in (
            (lambda: path.write_bytes(b'{"version": 1, "users": {"a": 1}}'), "$.users.a"),
            (path.unlink, "no users file"),
            (lambda: open_to_all(path, right), "chmod go-w"),
        ):
            spoil()
            eventually(lambda words=words: words in caplog.text)  # type: ignore[misc]
            store.put("orders", b"1")
            assert is_let_in(url, token_of(users))
    path.chmod(0o644)
    users.grant("anna", "get queue:orders")
    with quire.open(url, token=token_of(users)) as store:
        eventually(lambda: not may_put(store))


def open_to_all(path: Path, data: bytes) -> None:
    """Write a file that everybody may write."""
    path.write_bytes(data)
    path.chmod(0o666)


def may_put(store: quire.Store) -> bool:
    """Return True if a put is allowed."""
    try:
        store.put("orders", b"x")
    except NotAllowed:
        return False
    return True


def test_a_server_does_not_begin_with_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    """It says why."""
    with pytest.raises(NotFound, match="quire user add"):
        UserAccess(OsEnv(), str(tmp_path / "none.json"))
    wrong = tmp_path / "users.json"
    wrong.write_text("{}")
    with pytest.raises(InvalidArgument, match=r"users\.json is wrong: .*version"):
        UserAccess(OsEnv(), str(wrong))


def test_a_certificate_stands_for_a_user(owner: Store, users: Users) -> None:
    """By a name in it, over TLS; a token beside it decides; one of no user is refused."""
    server, client = certificates()
    owner.create_queue("orders")
    owner.create_queue("bills")
    users.grant("bert", "put queue:bills", certificates=("DNS:client",))
    with serving_users(owner, users, server) as url:
        with quire.open(url, tls=client) as store:
            store.put("bills", b"1")
            with pytest.raises(QueueNotFound):
                store.put("orders", b"1")
        with quire.open(url, tls=client, token=token_of(users)) as store:
            store.put("orders", b"1")
        users.grant("bert", "put queue:bills", certificates=("CN=another",))

        def is_refused() -> bool:
            try:
                quire.open(url, tls=client).close()
            except NotAllowed:
                return True
            return False

        eventually(is_refused)


def test_locking_ends_a_get_that_waits_over_tls(owner: Store, users: Users) -> None:
    """As without TLS."""
    server, client = certificates()
    owner.create_queue("orders")
    with (
        serving_users(owner, users, server) as url,
        quire.open(url, tls=client, token=token_of(users)) as store,
    ):
        waiting = threading.Thread(target=lambda: raises(lambda: store.get("orders", SECONDS)))
        waiting.start()
        eventually(owner.admin.transactions)
        users.grant("anna", "get queue:orders", locked=True)
        waiting.join(SECONDS)
        assert not waiting.is_alive()
        eventually(lambda: owner.admin.transactions() == [])


def test_with_users_no_certificate_of_clients_is_demanded(owner: Store, users: Users) -> None:
    """Beyond this machine too; a token goes over TLS."""
    server, client = certificates()
    alone = Tls(cert=server.cert, key=server.key)
    with pytest.raises(InvalidArgument, match="--users, or --client-ca"):
        places_to_listen(["0.0.0.0:0"], alone, insecure=False)
    owner.create_queue("orders")
    with serving_users(owner, users, alone, ["0.0.0.0:0"]) as url:
        port = url.rpartition(":")[2]
        there = f"quire://localhost:{port}"
        with quire.open(there, tls=Tls(ca=client.ca), token=token_of(users)) as store:
            store.put("orders", b"1")
        with pytest.raises(NotAllowed):
            quire.open(there, tls=Tls(ca=client.ca))


def test_a_user_works_as_one_does(owner: Store, url: str, users: Users) -> None:
    """Transactions, streams, sessions, listeners, schedules: with the rights for them."""
    users.grant(
        "anna",
        "put,get,manage queue:*; put,get,manage alias:*; put,get,manage state:*;"
        " put,get,manage session:*; manage schedule:*; put,get listener:*; put,get graph:*",
    )
    with quire.open(url, token=token_of(users)) as store:
        eventually(lambda: not raises(lambda: store.create_queue("mine", exist_ok=True)))
        store.admin.create_alias("alias", "mine", replace=True)
        assert int(store.put("alias", b"1")) > 0
        with store.transaction() as txn:
            message = txn.get("alias")
            assert message is not None
            assert (message.queue, message.payload) == ("mine", b"1")
            txn.put_many("mine", [b"2", b"3"])
            txn.set_value("state", "key", b"value")
            txn.enter("key", 1)
        assert store.states.get("state", "key") == b"value"
        assert store.integration.ledger("key") == 1
        store.put_stream("mine", [b"x" * 300_000])
        assert [len(m.payload) for m in store.get_many("mine", 3)] == [1, 1, 300_000]
        store.cron.create("daily", "mine", "@daily")
        assert [info.name for info in store.cron.list()] == ["daily"]
        session = store.session("anna")
        session.put("mine", b"question")
        with store.transaction() as txn:
            question = txn.get("mine")
            assert question is not None
            assert question.reply_to == "quire.replies.anna"
        heard: list[Any] = []
        with store.listeners.add("orders", heard.append, name="ear"):
            store.put("orders", b"1")
            eventually(lambda: heard)
        assert [info.name for info in store.listeners.list()] == ["ear"]
        assert store.listeners.remove("ear")
        assert store.get("*", 0) is not None


def raises(action: Callable[[], object]) -> bool:
    """Return True if it raises."""
    try:
        action()
    except QuireError:
        return True
    return False


def test_a_session_of_a_user_is_opened_again_by_the_store_s_own(
    owner: Store, url: str, users: Users
) -> None:
    """What the user's opening has got is there again at once, as over any two openings."""
    users.grant("anna", "put,get,manage queue:*; put,get,manage session:*")
    with quire.open(url, token=token_of(users)) as store:
        eventually(lambda: not raises(lambda: store.session("till")))
        older = store.session("till").transaction()
        owner.put("orders", b"1")
        assert older.get("orders") is not None
        assert owner.queue("orders").messages == 1
        owner.session("till")
        assert owner.admin.transactions() == []
        assert owner.get("orders") is not None
        older.rollback()


def test_transactions_are_named_by_their_user(owner: Store, url: str, users: Users) -> None:
    """Whatever the client says whose they are."""
    with quire.open(url, token=token_of(users)) as store, store.transaction(owner="boss") as txn:
        txn.put("orders", b"1")
        txn.count("orders")
        [info] = owner.admin.transactions()
        assert info.owner is not None
        assert info.owner == "user anna: boss"


def test_clients_of_an_address_with_many_wrong_tokens_are_slowed_and_logged(
    url: str, users: Users, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some in a minute each waits before its handshake; the log has one line (WT1, WT2)."""
    pauses: list[float] = []
    pause_of = Refusals.pause_of

    def noted(refusals: Refusals, address: str) -> float:
        pauses.append(pause_of(refusals, address))
        return pauses[-1] and 0.01

    monkeypatch.setattr(Refusals, "pause_of", noted)
    wrong = UserToken.draw(OsEnv()).text
    for _ in range(FREE_REFUSALS + 3):
        refusal(lambda: quire.open(url, token=wrong))
    assert pauses == [0.0] * FREE_REFUSALS + [REFUSED_PAUSE_SECONDS] * 3
    assert is_let_in(url, token_of(users))
    assert caplog.text.count("is refused") == 1


def test_refusals_are_counted_by_the_minute_and_address(caplog: pytest.LogCaptureFixture) -> None:
    """Ten thousand of one address are two lines; too many addresses are forgotten (WT3)."""
    refusals = Refusals()
    for n in range(10_000):
        refusals.note("192.0.2.1", n / 1000, "why")
    assert refusals.pause_of("192.0.2.1") == REFUSED_PAUSE_SECONDS
    assert refusals.pause_of("192.0.2.2") == 0
    refusals.look(REFUSALS_SECONDS - 0.1)
    assert refusals.pause_of("192.0.2.1") == REFUSED_PAUSE_SECONDS
    refusals.look(REFUSALS_SECONDS)
    assert refusals.pause_of("192.0.2.1") == 0
    assert [record.getMessage() for record in caplog.records] == [
        "a client at 192.0.2.1 is refused: why",
        "9999 more clients at 192.0.2.1 were refused",
    ]
    for n in range(MAX_REFUSED_ADDRESSES + FREE_REFUSALS):
        refusals.note(f"host{n}", 100.0, "why")
    assert len(refusals._by_address) == MAX_REFUSED_ADDRESSES

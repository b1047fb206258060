"""The file of users: what is refused and where, and what a change leaves behind."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quire.env import OsEnv
from quire.errors import InvalidArgument, NotFound
from quire.remote.access.granted_rights import GrantedRights, Need
from quire.remote.access.tokens import UserToken
from quire.remote.access.users_document import (
    Grant,
    NameKind,
    Right,
    TokenEntry,
    UserEntry,
    UsersDocument,
)
from quire.remote.access.users_file import UsersFile
from quire.testing import SimEnv, SimulatedCrash

ANNA: dict[str, Any] = {
    "version": 1,
    "users": {
        "anna": {
            "roles": ["clerk"],
            "grants": [{"rights": ["get"], "kind": "queue", "names": "orders"}],
            "tokens": [{"key_id": "0" * 16, "sha256": "a" * 64, "expires": "2030-01-01T00:00:00Z"}],
        }
    },
    "roles": {"clerk": [{"rights": ["put"], "kind": "queue", "names": "bills.*"}]},
}


def changed(path: str, value: object) -> bytes:
    """Return the document with another value at a place."""
    document: Any = json.loads(json.dumps(ANNA))
    *way, last = path.split(".")
    part = document
    for step in way:
        part = part[int(step) if isinstance(part, list) else step]
    part[int(last) if isinstance(part, list) else last] = value
    return json.dumps(document).encode()


def test_a_document_is_read_and_written_as_it_is() -> None:
    """What is encoded is read as the same."""
    document = UsersDocument.read(json.dumps(ANNA).encode())
    assert UsersDocument.read(document.encode()) == document
    assert [grant.target for grant in document.grants_of("anna")] == [
        "queue:orders",
        "queue:bills.*",
    ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"version": 1,\n "users": {,}}', "line 2"),
        (b"[]", "object"),
        (changed("version", 2), r"Invalid enum value 2.*`\$\.version`"),
        (changed("users.anna.role", []), r"unknown field `role` - at `\$\.users\.anna`"),
        (changed("users.anna.locked", "no"), r"Expected `bool`.*`\$\.users\.anna\.locked`"),
        (changed("users.anna.roles.0", "boss"), r"no role 'boss'.*`\$\.users\.anna\.roles\[0\]`"),
        (changed("users.anna.grants.0.rights", ["own"]), r"\$\.users\.anna\.grants\[0\]\.rights"),
        (changed("users.anna.grants.0.rights", []), r"put,get.*`\$\.users\.anna\.grants\[0\]`"),
        (changed("users.anna.grants.0.kind", "table"), r"kind 'table'.*\$\.users\.anna\.grants"),
        (changed("users.anna.grants.0.names", "a*b"), r"one \* behind it"),
        (changed("users.anna.grants.0.names", "a b"), "no queue has such a name"),
        (changed("users.anna.tokens.0.sha256", "b"), r"\$\.users\.anna\.tokens\[0\]\.sha256"),
        (changed("users.anna.tokens.0.expires", "2030-01-01T00:00:00"), "time zone"),
        (changed("users.anna.tokens", ANNA["users"]["anna"]["tokens"] * 2), "has this key id"),
        (
            changed("users.anna.certificates", ["CN=a", "CN=a"]),
            r"\$\.users\.anna\.certificates\[1\]",
        ),
        (changed("users.a b", {}), r"1 to 200 of.*\$\.users\.a b"),
        (changed("roles.clerk.0.kind", 7), r"\$\.roles\.clerk\[0\]\.kind"),
    ],
)
def test_a_wrong_document_says_where_it_is_wrong(data: bytes, words: str) -> None:
    """By the place in it, also beyond what its types say (UD1)."""
    with pytest.raises(InvalidArgument, match=words):
        UsersDocument.read(data)


def test_no_more_than_two_tokens() -> None:
    """The one in use, and its follower."""
    tokens = [{"key_id": f"{n:016x}", "sha256": "a" * 64} for n in range(3)]
    with pytest.raises(InvalidArgument, match="at most 2 tokens"):
        UsersDocument.read(changed("users.anna.tokens", tokens))


def test_a_change_replaces_the_file_and_a_failed_one_does_not(tmp_path: Path) -> None:
    """What the change raises, and what it makes wrong, leave the file as it was (UF2)."""
    file = UsersFile(OsEnv(), tmp_path / "users.json")
    with pytest.raises(NotFound, match="quire user add"):
        file.read()
    with pytest.raises(NotFound):
        file.change(lambda document: document)
    file.change(lambda document: document, create=True)
    assert file.read() == UsersDocument()
    anna = msgspec.structs.replace(UsersDocument(), users={"anna": UserEntry()})
    assert file.change(lambda _: anna) == file.read() == anna
    wrong = msgspec.structs.replace(anna, users={"anna": UserEntry(roles=("none",))})
    before = Path(file.path).read_bytes()
    with pytest.raises(InvalidArgument, match="no role 'none'"):
        file.change(lambda _: wrong)
    with pytest.raises(ZeroDivisionError):
        file.change(lambda _: 1 // 0)  # type: ignore[arg-type,return-value]
    assert Path(file.path).read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["users.json", "users.json.lock"]


def test_changes_at_the_same_time_are_all_there(tmp_path: Path) -> None:
    """One process, or thread, changes the file at a time."""
    path = tmp_path / "users.json"
    UsersFile(OsEnv(), path).change(lambda document: document, create=True)

    def add(name: str) -> None:
        UsersFile(OsEnv(), path).change(
            lambda document: msgspec.structs.replace(
                document, users={**document.users, name: UserEntry()}
            )
        )

    threads = [threading.Thread(target=add, args=(f"user{n}",)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(UsersFile(OsEnv(), path).read().users) == [f"user{n}" for n in range(5)]


@pytest.mark.parametrize("seed", range(5))
def test_a_power_failure_leaves_the_file_before_or_after_a_change(seed: int) -> None:
    """At every write, sync and rename of a change (UF1)."""
    found = []
    anna = msgspec.structs.replace(UsersDocument(), users={"anna": UserEntry()})
    for step in range(1, 7):
        env = SimEnv(seed)
        env.make_directory("/etc")
        env.sync_directory("/")
        file = UsersFile(env, "/etc/users.json")
        file.change(lambda document: document, create=True)
        env.crash_at = env.calls.last_number + step
        with suppress(SimulatedCrash):
            file.change(lambda _: anna)
        assert env.crashed or step == 1  # there is nothing to be removed
        env.crash_at = None
        found.append(UsersFile(env.crash(), file.path).read())
    assert found[0] == anna
    assert all(document in (UsersDocument(), anna) for document in found)
    assert found[1:4] == [UsersDocument()] * 3


def test_a_file_that_others_may_write_is_not_enforced(tmp_path: Path) -> None:
    """Any of them could give himself every right (UF3)."""
    file = UsersFile(OsEnv(), tmp_path / "users.json")
    file.change(lambda document: document, create=True)
    assert file.read_for_server() == UsersDocument()
    os.chmod(file.path, 0o666)
    with pytest.raises(InvalidArgument, match="chmod go-w"):
        file.read_for_server()


def test_a_file_that_others_may_replace_is_not_enforced(tmp_path: Path) -> None:
    """In a directory in which anybody may rename files, unless only their owners may."""
    directory = tmp_path / "shared"
    directory.mkdir()
    file = UsersFile(OsEnv(), directory / "users.json")
    file.change(lambda document: document, create=True)
    directory.chmod(0o777)
    with pytest.raises(InvalidArgument, match="chmod o-w"):
        file.read_for_server()
    directory.chmod(0o1777)
    assert file.read_for_server() == UsersDocument()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A directory, and a pipe, for whose writer nobody waits."""
    make(tmp_path / "users.json")
    file = UsersFile(OsEnv(), tmp_path / "users.json")
    for read in (file.read, file.read_for_server, lambda: file.change(lambda found: found)):
        with pytest.raises(InvalidArgument, match="is not a file: give the path of a users file"):
            read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_not_enforced(tmp_path: Path) -> None:
    """He can write it; and by a link neither. A change by root leaves it to its owner."""
    file = UsersFile(OsEnv(), tmp_path / "users.json")
    file.change(lambda document: document, create=True)
    os.chown(file.path, 12345, 12345)
    os.chmod(file.path, 0o640)
    link = tmp_path / "link.json"
    link.symlink_to(file.path)
    for each in (file, UsersFile(OsEnv(), link)):
        with pytest.raises(InvalidArgument, match="user 12345"):
            each.read_for_server()
    anna = msgspec.structs.replace(UsersDocument(), users={"anna": UserEntry()})
    UsersFile(OsEnv(), link).change(lambda _: anna)
    status = os.stat(file.path)
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (12345, 12345, 0o640)
    assert link.is_symlink()
    assert file.read() == anna


def test_a_change_keeps_the_mode_without_what_others_may_write(tmp_path: Path) -> None:
    """A file that its administrators may read stays so (UF4)."""
    file = UsersFile(OsEnv(), tmp_path / "users.json")
    file.change(lambda document: document, create=True)
    assert os.stat(file.path).st_mode & 0o777 == 0o600
    os.chmod(file.path, 0o664)
    file.change(lambda _: UsersDocument(users={"anna": UserEntry()}))
    assert os.stat(file.path).st_mode & 0o777 == 0o644
    assert "anna" in file.read_for_server().users


def test_a_file_that_is_replaced_while_it_is_read_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read, and whose file was looked at, would be two files."""
    file = UsersFile(OsEnv(), tmp_path / "users.json")
    file.change(lambda document: document, create=True)
    read = UsersFile.read

    def replaced(self: UsersFile) -> UsersDocument:
        found = read(self)
        os.utime(self.path)
        return found

    monkeypatch.setattr(UsersFile, "read", replaced)
    with pytest.raises(InvalidArgument, match="was replaced while"):
        file.read_for_server()


def test_a_token_is_drawn_stored_as_a_digest_and_compared() -> None:
    """Two are never the same, and only the own digest fits (TO1, TO2)."""
    token, other = UserToken.draw(OsEnv()), UserToken.draw(OsEnv())
    assert token.text != other.text
    assert len(token.text.split("_", 2)[2]) >= 43  # of 32 bytes
    again = UserToken(token.text)
    assert again.fits(token.digest())
    assert not again.fits(other.digest())
    assert not again.fits(None)
    assert token.text.split("_", 2)[2] not in token.digest()


def test_a_token_is_shown_by_nothing_but_its_text() -> None:
    """Neither by `repr`, `str` or a format, nor by the error for one that is none, or a pickle."""
    token = UserToken.draw(OsEnv())
    secret = token.text.split("_", 2)[2]
    assert secret not in f"{token!r} {token} {[token]}"
    with pytest.raises(TypeError, match="no other process"):
        pickle.dumps(token)
    with pytest.raises(InvalidArgument) as error:
        UserToken(token.text + "?")
    assert secret not in repr(error.value)


def test_a_token_expires() -> None:
    """At its time, in whichever zone that is given."""
    time = dt.datetime(2030, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    entry = TokenEntry("0" * 16, "a" * 64, time)
    at_us = int(time.timestamp() * 1e6)
    assert not entry.has_expired(at_us - 1)
    assert entry.has_expired(at_us)
    assert not TokenEntry("0" * 16, "a" * 64).has_expired(at_us)


@pytest.mark.parametrize(
    ("grant", "need", "allowed"),
    [
        (("put", "queue:orders"), (Right.PUT, "orders"), True),
        (("put", "queue:orders"), (Right.PUT, "orders2"), False),
        (("put", "queue:orders"), (Right.GET, "orders"), False),
        (("put", "queue:orders"), (None, "orders"), True),
        (("put", "queue:orders.*"), (Right.PUT, "orders.new"), True),
        (("put", "queue:orders.*"), (Right.PUT, "orders"), False),
        (("put", "queue:orders.*"), (Right.PUT, "orders.new.*"), True),
        (("put", "queue:orders.*"), (Right.PUT, "orders*"), False),
        (("put", "queue:orders"), (Right.PUT, "orders*"), False),
        (("get", "queue:*"), (Right.BROWSE, "a"), True),
        (("browse", "queue:*"), (Right.GET, "a"), False),
        (("manage", "queue:*"), (Right.PUT, "a"), False),
        (("admin", "queue:a"), (Right.MANAGE, "a"), True),
        (("put", "state:orders"), (Right.PUT, "orders"), False),
        (("put", "*:orders"), (Right.PUT, "orders"), True),
    ],
)
def test_what_a_grant_allows(
    grant: tuple[str, str], need: tuple[Right | None, str], allowed: bool
) -> None:
    """Exactly the names that it has, and the rights that follow from its own (GR1, GR2)."""
    rights = GrantedRights([Grant.of(*grant)])
    assert rights.allows(Need(need[0], NameKind.QUEUE, need[1])) is allowed


def test_only_admin_of_everything_is_admin_of_the_store() -> None:
    """A grant on all kinds of some names does not reach the store as a whole."""
    need = Need(Right.ADMIN, NameKind.STORE, "*")
    assert GrantedRights([Grant.of("admin", "*:*")]).allows(need)
    assert GrantedRights([Grant.of("admin", "store:*")]).allows(need)
    assert not GrantedRights([Grant.of("admin", "*:orders*")]).allows(need)
    assert not GrantedRights([Grant.of("put,get,browse,manage", "*:*")]).allows(need)


@pytest.mark.parametrize(
    ("rights", "target"), [("own", "queue:a"), ("put", "table:a"), ("", "*:*")]
)
def test_a_grant_that_cannot_be_is_refused(rights: str, target: str) -> None:
    """With words that say what there is."""
    with pytest.raises(InvalidArgument, match="give"):
        Grant.of(rights, target)

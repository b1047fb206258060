"""The commands for users: what each does to the file, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quire.cli import main
from quire.env import OsEnv
from quire.remote.access.tokens import UserToken
from quire.remote.access.users_file import UsersFile


class Terminal:
    """Runs commands on one file of users."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = str(path)
        self._capsys = capsys
        self.errors = ""

    def __call__(self, command: str, *arguments: str, status: int = 0) -> str:
        """The output of `quire user COMMAND FILE ARGUMENTS`, which must end with `status`."""
        assert main(["user", command, self.path, *arguments]) == status
        output, self.errors = self._capsys.readouterr()
        return output

    def listed(self) -> dict[str, Any]:
        """What `ls` tells."""
        found: dict[str, Any] = json.loads(self("ls", "--json"))
        return found


@pytest.fixture
def user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """A file with anna."""
    terminal = Terminal(tmp_path / "users.json", capsys)
    terminal("add", "anna")
    return terminal


def test_users_come_and_go(user: Terminal) -> None:
    """One that is there, or not there, is an error that says so, and changes nothing."""
    user("add", "bert", "--certificate", "CN=bert")
    assert list(user.listed()["users"]) == ["anna", "bert"]
    assert user.listed()["users"]["bert"]["certificates"] == ["CN=bert"]
    user("add", "bert", status=1)
    assert "there is a user 'bert' already" in user.errors
    user("rm", "bert")
    user("rm", "bert", status=1)
    assert "there is no user 'bert'" in user.errors
    user("add", "a b", status=1)
    user("add", "carla", "--role", "none", status=1)
    assert "there is no role 'none'" in user.errors
    assert list(user.listed()["users"]) == ["anna"]


def test_rights_are_granted_and_revoked(user: Terminal) -> None:
    """On several names at a time; what is not granted cannot be revoked (UC1)."""
    user("grant", "anna", "put", "queue:orders", "queue:bills.*")
    user("grant", "anna", "get", "queue:orders")
    assert user.listed()["users"]["anna"]["grants"] == ["put,get queue:orders", "put queue:bills.*"]
    user("revoke", "anna", "put", "queue:orders")
    assert user.listed()["users"]["anna"]["grants"] == ["get queue:orders", "put queue:bills.*"]
    user("revoke", "anna", "put,get", "queue:orders", status=1)
    assert "anna has no grant of put on queue:orders" in user.errors
    user("revoke", "anna", "put", "queue:bills.*")
    user("grant", "anna", "put", status=1)
    user("grant", "anna", status=1)
    user("grant", "anna", "own", "queue:a", status=1)
    user("grant", "anna", "put", "table:a", status=1)
    assert user.listed()["users"]["anna"]["grants"] == ["get queue:orders"]


def test_a_role_is_given_and_taken(user: Terminal) -> None:
    """It is made by its first grant, and removed once nobody has it."""
    user("grant", "role:clerk", "put,get", "queue:orders")
    user("grant", "anna", "--role", "clerk")
    found = user.listed()
    assert found["roles"] == {"clerk": ["put,get queue:orders"]}
    assert found["users"]["anna"]["roles"] == ["clerk"]
    user("revoke", "role:clerk", status=1)
    assert "anna" in user.errors
    user("revoke", "anna", "--role", "clerk")
    user("revoke", "anna", "--role", "clerk", status=1)
    user("revoke", "role:clerk")
    assert user.listed()["roles"] == {}


def test_a_token_is_printed_once_and_kept_nowhere(user: Terminal) -> None:
    """The file has its digest; two are valid at a time, and one is ended by its key id."""
    first = UserToken(user("token", "anna").strip())
    second = UserToken(user("token", "anna", "--days", "30").strip())
    user("token", "anna", status=1)
    assert f"{first.key_id} and {second.key_id}" in user.errors
    [one, other] = UsersFile(OsEnv(), user.path).read().users["anna"].tokens
    assert first.fits(one.sha256)
    assert second.fits(other.sha256)
    assert (one.expires, other.expires is None) == (None, False)
    kept = Path(user.path).read_text() + user("ls") + user("ls", "--json")
    for token in (first, second):
        assert token.key_id in kept
        assert token.text.split("_", 2)[2] not in kept
    assert user("token", "anna", "--revoke", first.key_id) == ""
    user("token", "anna", "--revoke", first.key_id, status=1)
    UserToken(user("token", "anna").strip())


def test_a_user_is_locked_and_unlocked(user: Terminal) -> None:
    """As `ls` shows."""
    user("lock", "anna")
    assert user.listed()["users"]["anna"]["locked"]
    assert "locked" in user("ls")
    user("unlock", "anna")
    assert not user.listed()["users"]["anna"]["locked"]


def test_limits_are_set_and_taken_back(user: Terminal) -> None:
    """Of a user, of a role and of all users, with units; what is wrong changes nothing (UD4)."""
    user("grant", "role:clerk", "put", "queue:*")
    user("limit", "anna", "bytes=64M", "connections=10", "idle_seconds=10m")
    user("limit", "role:clerk", "connections=none")
    user("limit", "*", "transactions=5")
    found = user.listed()
    assert found["users"]["anna"]["limits"] == {
        "bytes": 64 << 20, "connections": 10, "idle_seconds": 600,
    }  # fmt: skip
    assert found["limits"] == {"role:clerk": {"connections": None}, "*": {"transactions": 5}}
    assert "limits of all users: transactions=5" in user("ls")
    assert "limits of anna: bytes=67108864, connections=10, idle_seconds=600" in user("ls")
    for wrong in ("bytes=much", "conections=1", "connections=0", "connections", "none=default"):
        user("limit", "anna", wrong, status=1)
    user("limit", "carl", "connections=1", status=1)
    user("limit", "role:none", "connections=1", status=1)
    assert user.listed() == found
    user("limit", "anna", "bytes=default", "connections=default", "idle_seconds=default")
    assert user.listed()["users"]["anna"]["limits"] == {}
    user("limit", "anna", "connections=10")
    user("rm", "anna")
    user("revoke", "role:clerk")
    assert user.listed()["limits"] == {"*": {"transactions": 5}}


def test_without_a_file_only_add_makes_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others say how to."""
    terminal = Terminal(tmp_path / "none.json", capsys)
    for command in ("rm", "grant", "revoke", "token", "lock", "unlock"):
        more = ["put", "queue:a"] if command in ("grant", "revoke") else []
        terminal(command, "anna", *more, status=1)
        assert "quire user add" in terminal.errors
    terminal("ls", status=1)
    assert not (tmp_path / "none.json").exists()

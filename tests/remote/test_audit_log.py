"""The audit log: who has changed what, who was refused what, and nothing of messages."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import InvalidArgument, NotAllowed, QueueExists, QueueNotFound
from quire.opening import serve
from quire.remote.access.audit_log import AuditLog
from quire.remote.access.granted_rights import Need
from quire.remote.access.users_document import NameKind, Right
from quire.remote.limits import AUDIT_FILE_BYTES, AUDIT_FILES, AUDITED_REFUSALS, REFUSALS_SECONDS
from tests.behaviour.forms import Clock
from tests.kit.users import Users, serving_users


def records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file without their times."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for record in found:
        assert record.pop("time").endswith("+00:00")
    return found


def test_changes_and_refusals_are_written_down(owner: Store, tmp_path: Path) -> None:
    """With user, address, rights and outcome, and no payload, value or token (AU1, AU2)."""
    users, path = Users(tmp_path), tmp_path / "audit.log"
    users.grant("anna", "put,manage queue:mine; put state:mine")
    token = users.tokens["anna"].text
    with serving_users(owner, users, audit=path) as url:
        with pytest.raises(NotAllowed):
            quire.open(url)
        with quire.open(url, token=token) as store:
            store.create_queue("mine")
            with pytest.raises(QueueExists):
                store.create_queue("mine")
            store.put("mine", b"hush")
            with store.transaction() as txn:
                txn.set_value("mine", "key", b"hush")
                txn.put("mine", b"hush", correlation_id="hush")
            with pytest.raises(NotAllowed):
                store.get("mine")
            with pytest.raises(QueueNotFound):
                store.put("theirs", b"hush")
            with pytest.raises(NotAllowed):
                store.admin.checkpoint()
            assert len(records(path)) == 6
    by = ["manage on queue 'mine'"]
    anna = {"user": "anna", "from": "127.0.0.1"}
    assert records(path) == [
        {"user": "", "from": "127.0.0.1", "refused": "admission"},
        {**anna, "call": "admin.create_queues", "by": by, "outcome": "done"},
        {**anna, "call": "admin.create_queues", "by": by, "outcome": "QueueExists"},
        {**anna, "refused": "get on queue 'mine'"},
        {**anna, "refused": "any right on queue 'theirs'"},
        {**anna, "refused": "admin on the store"},
    ]
    assert "hush" not in path.read_text()
    assert token.split("_", 2)[2] not in path.read_text()


def test_it_is_rotated_and_bounded(tmp_path: Path) -> None:
    """A full file moves on, the last one goes; a cut line does not spoil the next (AU3)."""
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"cut')
    need = [Need(Right.MANAGE, NameKind.QUEUE, "q")]
    log = AuditLog(OsEnv(), str(path))
    log.note_call("anna", "192.0.2.1", "purge", need, "done")
    assert path.read_text().splitlines()[0] == '{"cut'
    assert json.loads(path.read_text().splitlines()[1])["call"] == "purge"
    for n in range(AUDIT_FILES + 1):
        log._size = AUDIT_FILE_BYTES  # as if it were full
        log.note_call("anna", "192.0.2.1", f"call{n}", need, "done")
    log.close()
    names = ["audit.log", *(f"audit.log.{n}" for n in range(1, AUDIT_FILES))]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    newest = [json.loads((tmp_path / name).read_text())["call"] for name in names]
    assert newest == [f"call{AUDIT_FILES - n}" for n in range(AUDIT_FILES)]


def test_refusals_drive_nothing_out(tmp_path: Path, clock: Clock) -> None:
    """Of a user's there are so many lines in a minute, then a number (AU3)."""
    log = AuditLog(OsEnv(), str(tmp_path / "audit.log"))
    for _ in range(10_000):
        log.note_refusal("anna", "192.0.2.1", "get on queue 'q'")
    log.note_refusal("bert", "192.0.2.1", "get on queue 'q'")
    clock.forward(REFUSALS_SECONDS)
    log.note_refusal("anna", "192.0.2.1", "get on queue 'q'")
    log.close()
    found = records(tmp_path / "audit.log")
    assert len(found) == AUDITED_REFUSALS + 3
    assert found[-2]["refused"] == "more"
    assert found[-2]["count"] == 10_000 - AUDITED_REFUSALS


def test_calls_go_on_where_it_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's log says so, once until it can be written again (AU4)."""
    log = AuditLog(OsEnv(), str(tmp_path / "audit.log"))
    log.close()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            log.note_call("anna", "192.0.2.1", "purge", [], "done")
    assert caplog.text.count("cannot be written") == 1


def test_it_goes_with_users(store_path: str) -> None:
    """Where nobody is a user there is nothing to write down."""
    with pytest.raises(InvalidArgument, match="give users"):
        serve(store_path, audit="audit.log")

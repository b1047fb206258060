"""Whatever a client may request of an owner is a row of the table of calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import QuireError
from quire.interface.store import Store as StoreInterface
from quire.interface.transaction import Transaction
from quire.remote import JoinedStore
from quire.remote.server.served_client import ServedClient
from quire.remote.server.stream_transaction import StreamTransaction
from quire.remote.wire.failures import raise_error
from quire.remote.wire.named_calls import BEGIN, CALLS, FAILED, REQUESTS, STEPS
from quire.remote.wire.payload_streams import READ_CHUNK
from quire.remote.wire.protocol import CALL, DRAIN, PING, RESULT, STEP, TELL, Decision, Kind
from tests.kit.raw_stream import RawStream, call


def dispatched(client: ServedClient) -> Iterator[tuple[int, str]]:
    """Everything that the owner's code does something for."""
    for kind in client._short:
        if kind == CALL:
            yield from ((kind, op) for op in (*CALLS, FAILED, READ_CHUNK))
            yield from ((kind, decision.value) for decision in Decision)
        elif kind == STEP:
            yield from ((kind, op) for op in {**STEPS, **StreamTransaction.operations})
        else:
            yield kind, BEGIN if kind == TELL else ""


def test_each_request_has_a_row(
    owner: Store, joined: JoinedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NC1: kinds and operations are dispatched where they have one, and no row is for nothing."""
    clients: list[ServedClient] = []
    whole = ServedClient.answer

    def noted(client: ServedClient, data: bytes) -> object:
        clients.append(client)
        return whole(client, data)

    monkeypatch.setattr(ServedClient, "answer", noted)
    assert not joined.failed
    found = set(dispatched(clients[0]))
    assert found - {(PING, ""), (DRAIN, "")} == set(REQUESTS)  # which concern the connection alone
    assert {kind for kind, _ in found} == {kind for kind in Kind if kind < RESULT}


def test_a_row_is_a_method_with_its_facts() -> None:
    """NC1: it names what it calls, and what ends a transaction or a prepared one is a change."""
    for (kind, op), row in REQUESTS.items():
        assert row.method.__doc__, (kind, op)
    by_name = {row.op: row.facts.changes for row in REQUESTS.values()}
    expected = {"put": False, "commit": True, "prepare": True, "rollback": False, "get": False}
    expected |= {"prepared.commit": True, "prepared.rollback": True, "transaction": False}
    assert expected.items() <= by_name.items()


@pytest.mark.promise(13)
@pytest.mark.parametrize("kind", [CALL, STEP, TELL])
def test_what_has_no_row_is_refused(owner: Store, joined: JoinedStore, kind: int) -> None:
    """NC1: what else the objects have, by its name, and rows of another kind."""
    names = {*dir(StoreInterface), *dir(Transaction), *dir(owner), *(op for _, op in REQUESTS), ""}
    without = sorted(name for name in names if (kind, name) not in REQUESTS)
    assert {"close", "put", "__class__"} <= set(without)
    with closing(RawStream(joined.url)) as stream:
        for number, name in enumerate(without, 1):
            request = call({"op": name, "arguments": {}}, kind=kind, stream=number)
            if kind == TELL:  # nobody waits for an answer: the stream has ended
                stream.send(request)
                request = call({"op": "count"}, kind=STEP, stream=number)
            with pytest.raises(QuireError, match=r"no operation|has ended"):
                raise_error(stream.ask(request).header)
    assert owner.admin.transactions() == []

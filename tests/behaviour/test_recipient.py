"""Messages for one recipient: an attribute, for which a template or a selector asks."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import quire
from tests.kit.waiting import SECONDS

from .forms import AnyStore


def put(store: AnyStore, payload: bytes, recipient: str | None) -> None:
    """To one of them, or to nobody in particular."""
    store.put("mail", payload, attributes={"recipient": recipient} if recipient else {})


def to(recipient: str) -> quire.Template:
    """What it asks for."""
    return quire.Template(attributes={"recipient": recipient})


@pytest.mark.parametrize("indexed", [[], ["recipient"]])
def test_each_gets_its_own(store: AnyStore, indexed: list[str]) -> None:
    """In order, and passes by what is for others; what is for nobody is everybody's."""
    store.create_queue("mail", kind="work", indexed=indexed)
    for n, recipient in enumerate(("a", "b", None, "a", "b")):
        put(store, b"%d" % n, recipient)
    assert store.get_many("mail", where=to("b")).payloads() == [b"1", b"4"]
    assert store.get("mail", where=to("b")) is None
    assert store.get_many("mail", where="recipient IS NULL").payloads() == [b"2"]
    assert store.get_many("mail", where=to("a")).payloads() == [b"0", b"3"]


def test_one_waits_for_its_own(store: AnyStore) -> None:
    """What comes for others does not end the wait."""
    store.create_queue("mail", kind="work", indexed=["recipient"])
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.append(store.get("mail", timeout=SECONDS, where=to("b")))
    )
    thread.start()
    put(store, b"0", "a")
    put(store, b"1", "b")
    thread.join()
    assert [each.payload for each in found] == [b"1"]
    assert store.browse("mail").payloads() == [b"0"]


def test_one_has_a_subscription(store: AnyStore) -> None:
    """A loop over it gets what is for that recipient, and for all."""
    store.create_queue("mail", kind="topic")
    for name in ("a", "b"):
        store.subscribe("mail", name, where=f"recipient = '{name}' OR recipient IS NULL")
    for n, recipient in enumerate(("a", "b", None, "c")):
        put(store, b"%d" % n, recipient)
    assert store.get_many("mail/a").payloads() == [b"0", b"2"]
    assert store.get_many("mail/b").payloads() == [b"1", b"2"]

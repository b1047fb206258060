"""Puts that wait for the shipper of the store's archive: the same for any store."""

from __future__ import annotations

import threading
import time

import pytest

from quire.errors import ArchiveFull
from quire.reports.info import ShippingReport
from tests.behaviour.forms import AnyStore
from tests.kit.waiting import SECONDS, eventually

UNREACHABLE = "/proc/none/archive"  # so that nothing is shipped but what a test reports


def test_puts_wait_until_records_are_shipped(store: AnyStore) -> None:
    """For so long as they say; gets and rollbacks go on, and so does what was put before."""
    store.create_queue("q", kind="work")
    store.admin.set_archive(UNREACHABLE, limit="64k", full="wait")
    before = store.transaction()
    before.put("q", b"before")
    store.put_many("q", [b"x" * 30_000] * 3)
    eventually(lambda: store.status()["archive"]["puts_wait"])
    with pytest.raises(ArchiveFull, match="puts wait for that"):
        store.put("q", b"refused", timeout=0.0)
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(store.put("q", b"last")))
    thread.start()
    before.commit()
    assert len(store.get_many("q", 3)) == 3
    with store.transaction() as txn:
        assert txn.get("q") is not None
        txn.rollback()
    time.sleep(0.1)
    assert not done
    end = store.integration.ship()
    store.integration.ship(ShippingReport(end.end_lsn, end.end_number, 1))
    thread.join(SECONDS)
    assert len(done) == 1
    assert [message.payload for message in store.get_many("q")] == [b"before", b"last"]
    assert not store.status()["archive"]["puts_wait"]
    store.admin.stop_archive()

"""A store in a process whose limits on files are reached for a while.

    python -m tests.engine.limited_process STORE nofile|fsize

Prints what each call came to, and what is there in the end, as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from contextlib import suppress

from quire.engine import EmbeddedStore as Store
from quire.errors import QuireError, ResourceExhausted

UNLIMITED = resource.RLIM_INFINITY


def outcome(step: Callable[[], object]) -> str:
    """The error's class and errno, or "done"."""
    try:
        step()
    except ResourceExhausted as error:
        return f"{type(error).__name__} {error.errno}"
    except (QuireError, OSError) as error:
        return repr(error)
    return "done"


def main(path: str, limit: str) -> None:
    """Work, work within the limit, and work again."""
    with Store.open(path, segment_bytes=1 << 20) as store:
        store.create_queue("q", kind="work")

        def put_many() -> None:
            with store.transaction() as txn:
                txn.put_many("q", [bytes(1000)] * 5)

        def put_large() -> None:
            with store.transaction(large=True) as txn:
                txn.put_many("q", [bytes(9000)] * 5)

        def go_on_to_next_segment() -> None:
            for _ in range(20):
                store.put("q", bytes(100_000))

        def get() -> None:
            with store.transaction() as txn:
                assert txn.get("q") is not None

        steps = (put_many, put_large, store.admin.checkpoint, go_on_to_next_segment, get)
        put_many()
        get()
        store.admin.checkpoint()
        kept: list[int] = []
        kind = resource.RLIMIT_NOFILE if limit == "nofile" else resource.RLIMIT_FSIZE
        soft, hard = resource.getrlimit(kind)
        if limit == "nofile":
            resource.setrlimit(kind, (min(256, hard), hard))
            with suppress(OSError):
                while True:
                    kept.append(os.open(os.devnull, os.O_RDONLY))
        else:
            resource.setrlimit(kind, (300_000, hard))
        within = [outcome(step) for step in steps]
        for descriptor in kept:
            os.close(descriptor)
        resource.setrlimit(kind, (soft, hard))
        there = store.queue("q").messages
        after = [outcome(step) for step in steps]
        more = store.queue("q").messages - there
        findings = store.admin.verify().findings
    with Store.open(path) as store:
        reopened = store.queue("q").messages - there - more
    print(json.dumps([within, after, more, reopened, findings]))


if __name__ == "__main__":
    main(*sys.argv[1:])

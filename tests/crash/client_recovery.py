"""The processes of a client's recovery (Bernstein, 001): who owns, who serves, who asks.

Each has a plan, as "server@take in#2": whom to kill when it comes to a step for the second time.
"Everybody" is killed with the one who does so last.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import quire
from quire import RequestState, put_reply
from quire.errors import ConnectionLost, OutcomeUnknown, StateConflict, TransactionError
from tests.kit.behind_loop import joined_behind_loop
from tests.kit.violation import Violation

OPTIONS: dict[str, Any] = {"segment_bytes": 4 << 20}
ROLES = ("owner", "server", "client")
CLIENT_STEPS = (
    "begin", "begin in", "begun", "submit", "submit in", "submitted", "wait", "take in", "put in",
    "taken",
)  # fmt: skip
SERVER_STEPS = ("serve", "got", "answered", "served")
AT_ONCE = 2  # requests
WHOLE, CARELESS = "whole", "careless"
WORK_SECONDS = 0.05  # that a request takes, in which its client comes to wait for it
LETTERS = {
    RequestState.NOT_PUT: "A",
    RequestState.PENDING: "B",
    RequestState.ANSWERED: "C",
    RequestState.TAKEN: "D",
}
LOST = (ConnectionLost, OutcomeUnknown, StateConflict, TransactionError)  # look, and go on


class Step:
    """Where a process is, and whom it kills there."""

    def __init__(self, folder: str, role: str, plan: str) -> None:
        self._folder, self._role = Path(folder), role
        self._victim, _, where = plan.partition("@")
        self._step, _, times = where.partition("#")
        self._left = int(times or 0)
        (self._folder / f"{role}.pid").write_text(f"{os.getpid()}.")

    def __call__(self, name: str) -> None:
        """The process comes to it."""
        if not self._left or name != self._step:
            return
        self._left -= 1
        if not self._left:
            self.write("killed", f"{self._victim}@{name}")
            victims = ROLES if self._victim == "all" else (self._victim,)
            for role in sorted(victims, key=lambda one: one == self._role):
                os.kill(self._process_of(role), signal.SIGKILL)

    def _process_of(self, role: str) -> int:
        """Its id, once it has begun."""
        place = self._folder / f"{role}.pid"
        while not (place.exists() and place.read_text().endswith(".")):
            time.sleep(0.01)
        return int(place.read_text().rstrip("."))

    def write(self, what: str, line: str) -> None:
        """Have the test read it, whatever becomes of this process."""
        file = os.open(self._folder / what, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode() + b"\n")
        os.close(file)


def owner(folder: str, plan: str) -> None:
    """Own the store, unless somebody does, until it is killed or told to end."""
    Step(folder, "owner", plan)
    with quire.open(f"{folder}/store", **OPTIONS) as store:
        for name in ("asked", "executed", "processed"):
            store.create_queue(name, exist_ok=True)
        print("ready", flush=True)
        sys.stdin.readline()


def server(folder: str, plan: str, how: str = WHOLE) -> None:
    """Execute requests: each in one transaction, which says so in "executed".

    One that is careless says so by a transaction of its own.
    """
    at = Step(folder, "server", plan)
    with quire.open(f"{folder}/store", **OPTIONS) as store:
        print("ready", flush=True)
        while True:
            at("serve")
            try:
                with store.transaction() as txn:
                    request = txn.get("asked", 5.0)
                    if request is None:
                        continue
                    time.sleep(WORK_SECONDS)
                    if how == CARELESS:
                        store.put("executed", request.payload)
                    at("got")
                    if how == WHOLE:
                        txn.put("executed", request.payload)
                    put_reply(txn, request, request.payload)
                    at("answered")
                at("served")
            except LOST:
                continue


def client(folder: str, plan: str, form: str, count: str) -> None:
    """Have so many requests executed, each processed once, in "processed"; recover first."""
    at = Step(folder, "client", plan)
    path = f"{folder}/store"
    opened: AbstractContextManager[Any] = (
        joined_behind_loop(path) if form == "asyncio" else nullcontext()
    )
    with opened as behind, nullcontext(behind) if behind else quire.open(path, **OPTIONS) as store:
        print("ready", flush=True)
        session = again(lambda: store.session("client"))
        again(lambda: _recover(store, session, at))
        while again(lambda: _go_on(store, session, at, int(count))):
            pass
        print("done", flush=True)


def again(call: Any) -> Any:
    """What it gives, once no owner is lost meanwhile."""
    while True:
        try:
            return call()
        except LOST:
            time.sleep(0.01)


def _recover(store: Any, session: Any, at: Step) -> None:
    """What is told of all that was asked for, and whether it is so."""
    for number in range(1, session.info().last_begun + 1):
        state = session.resolve(number)
        letter = LETTERS[state]
        payload = store.states.get("client", str(number))
        asked, executed, processed = (
            payload in [m.payload for m in store.browse(name)]
            for name in ("asked", "executed", "processed")
        )
        is_right = {
            "A": not (asked or executed or processed),
            "B": not processed,
            "C": executed and not asked and not processed,
            "D": executed and not asked and processed,
        }[letter]
        at.write("told", letter)
        if not is_right:
            at.write("wrong", f"{letter}: {number} {(asked, executed, processed)}")
            raise Violation(f"request {number} is told as {letter}")


def _go_on(store: Any, session: Any, at: Step, count: int) -> bool:
    unfinished = session.unfinished()
    begun = int(store.states.get("client", "begun") or b"0")
    if begun < count and len(unfinished) < AT_ONCE:
        at("begin")
        with session.transaction() as txn:
            payload = b"%d" % begun
            number = session.begin("asked", payload, txn=txn)
            txn.set_value("client", str(number), payload)
            txn.set_value("client", "begun", b"%d" % (begun + 1))
            at("begin in")
        at("begun")
        return True
    for number in unfinished:
        state = session.resolve(number)
        if state == RequestState.NOT_PUT:
            at("submit")
            with session.transaction() as txn:
                session.submit(number, txn=txn)
                at("submit in")
            at("submitted")
        elif state == RequestState.PENDING:
            at("wait")
            session.result(number, 1.0)
        else:
            with session.transaction() as txn:
                reply = session.take(number, 5.0, txn=txn)
                if reply is None:
                    continue
                at("take in")
                txn.put("processed", reply.payload)
                at("put in")
            at("taken")
    return bool(unfinished)

"""The command that has the process that serves a store close it."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from quire.cli.command import Command, ExitStatus, argument
from quire.cli.typed_values import seconds
from quire.env import OsEnv
from quire.errors import ConnectionLost, InvalidArgument, StoreClosed, StoreLocked
from quire.libraries.late_imports import importing
from quire.limits import JOIN_POLL_SECONDS, JOIN_SECONDS
from quire.opening import another_users, checked_path, connect

if TYPE_CHECKING:
    from quire.remote import JoinedStore

_NETWORK: Final = "quire://"


def _shutdown(options: argparse.Namespace) -> int:
    store = _served(options)
    if store is None:
        print(f"quire: no process has {options.path} open", file=sys.stderr)
        return ExitStatus.NOTHING
    with store:
        process = store.owner_process_id
        store.admin.shutdown(grace=options.grace)
        print(f"process {process} closes {options.path}", flush=True)
        with suppress(ConnectionLost, StoreClosed):
            while options.wait:
                store.admin.queue_names(" ")  # what is no transaction goes on until the end
                OsEnv().sleep(JOIN_POLL_SECONDS)
    return ExitStatus.DONE


def _served(options: argparse.Namespace) -> JoinedStore | None:
    """Return the store as its owner serves it; None: nobody has it open. It is never owned here."""
    files = {"ca": options.tls_ca, "cert": options.tls_cert, "key": options.tls_key}
    if options.path.startswith(_NETWORK):
        with importing():
            from quire.tls import Tls

        return connect(options.path, tls=Tls(**files) if any(files.values()) else None)
    if any(files.values()):
        raise InvalidArgument("certificates are for quire://HOST:PORT: leave them out")
    with importing():
        from quire.engine.layout import Layout, no_store
        from quire.remote.client.joining import forbidden, join

    path, env = checked_path(options.path), OsEnv()
    if not env.exists(Layout(path).checkpoints):
        raise no_store(Layout(path))
    deadline = env.monotonic() + JOIN_SECONDS
    while (store := join(env, path)) is None and env.is_locked(Layout(path).lock):
        if (private := forbidden(env, path)) is not None:
            raise StoreLocked(another_users(path, private))
        if env.monotonic() > deadline:
            raise StoreLocked(
                f"{path} is open in a process that does not answer: it may be stopped (kill -CONT),"
                " or have opened the store with share=False; end that process"
            )
        env.sleep(JOIN_POLL_SECONDS)
    return store


COMMANDS: Final = (
    Command(
        "shutdown",
        "have `quire serve` close a store, in order",
        _shutdown,
        (
            argument(
                "--grace",
                type=seconds,
                default=0.0,
                metavar="S",
                help="let open transactions of clients end, for so many seconds (or 10m, 2h)",
            ),
            argument(
                "--no-wait",
                dest="wait",
                action="store_false",
                help="return at once, and not when it is closed",
            ),
            argument("--tls-ca", metavar="FILE", help="the authority of the server's certificate"),
            argument("--tls-cert", metavar="FILE", help="a client's certificate, in PEM"),
            argument("--tls-key", metavar="FILE", help="the private key of that"),
        ),
        "As SIGTERM does: no more transactions are begun, those that are open may end within\n"
        "the grace, what is open then is rolled back. PATH may be quire://HOST:PORT; the token is\n"
        "that of QUIRE_TOKEN, of a user with the right `admin store:*`. A program that owns a\n"
        "store and is no `quire serve` closes it itself, and this is refused. Another process\n"
        "that has the store open takes over. The exit status is 3 where nobody has it open.\n\n"
        "  quire shutdown shop.quire --grace 30\n"
        "  quire shutdown quire://mq.example:7413 --tls-ca ca.pem",
        calls=("admin.shutdown",),
    ),
)

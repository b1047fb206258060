"""Opening a store: owning it, or joining the process that owns it.

- One process owns a store at a time, by the lock in its directory; any other that opens it joins
  the owner over the store's socket, with the same methods, or gets `StoreLocked`, which names the
  owner.
- An owner serves others for as long as it has the store open, unless it asked not to.
- Waiting for an owner that is just starting or just ending is bounded.
- The store object that `open` gives lives on when the owner ends: see `quire.remote.ownership`,
  its modules `election` and `succession`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from quire.arguments import check_seconds
from quire.env import Env, OsEnv, check_env, return_large_blocks
from quire.errors import InvalidArgument, QuireError, StoreFailed, StoreLocked
from quire.libraries.late_imports import importing
from quire.limits import DEFAULT_CALL_TIMEOUT, JOIN_POLL_SECONDS, JOIN_SECONDS, START_SECONDS
from quire.loggers import logger

from .calls.signal_safety import made, waiting
from .env.memory_env import IN_MEMORY
from .env.os_descriptors import keep_standard_descriptors

if TYPE_CHECKING:
    from quire.remote import JoinedStore
    from quire.tls import Tls

    from .interface.store import Store
    from .metrics.metrics_server import MetricsServer
    from .remote.access.tokens import UserToken
    from .remote.access.user_access import UserAccess
    from .remote.ownership.election import Election
    from .remote.ownership.served_ports import ServedPorts
    from .remote.ownership.shared_store import SharedStore
    from .remote.server.signals import SignalFlag
    from .remote.server.store_server import StoreServer

_log = logger("quire.opening")
_NETWORK = "quire://"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def open(
    path: str | os.PathLike[str],
    *,
    env: Env | None = None,
    create: bool = True,
    share: bool = True,
    background: bool = True,
    tls: Tls | None = None,
    token: str | None = None,
    **options: Any,
) -> Store:
    """Open the store at `path`: own it, or join its owner.

    `create` makes a new store where there is none. `share` lets other processes join this one, and
    lets this one join another; without it the store is owned or StoreLocked is raised. `background`
    runs checkpoints, moves and time-outs in threads of the store.

    The URL "quire://host:port" in place of a path is a store that another machine serves (`quire
    serve --listen`): it is joined, over TLS with the certificates that `tls` names, and joined
    again whenever the connection is lost; "quire://host:port,host2:port2" tries each in turn.
    `token`: by which a server with users knows this one; without it QUIRE_TOKEN, or the line of the
    server in ~/.config/quire/tokens. Of the other arguments only the option `call_timeout` goes
    with it. See docs/network.md.

    The path ":memory:" is a store in the memory of this process, which is gone when it is
    closed: nobody else can join it, and nothing of it is on a disk, of queues that are durable
    elsewhere neither. For tests, and for queues that are all volatile.

    When the owner ends, one of the processes that have joined becomes the owner, and all go on
    with the store objects that they have. The options (see `quire.engine.Options`) hold while this
    process is the owner.

    Raises StoreNotFound, StoreLocked, StoreCorrupt, StoreVersion, StoreFailed, InvalidArgument; of
    a URL ConnectionLost, CertificateRefused, NotAllowed, InvalidArgument.
    """
    if isinstance(path, str) and path.startswith(_NETWORK):
        return _open_over_network(path, tls, token, env, share=share, options=options)
    if tls is not None or token is not None:
        name = "token" if tls is None else "tls"
        raise InvalidArgument(f"{path!r:.200} goes without {name}: it is for quire://host:port")
    if path == IN_MEMORY:
        return _open_in_memory(env, create=create, background=background, **options)
    path = checked_path(path)
    machine = check_env(env)
    if not share or not isinstance(machine, OsEnv):  # nobody else can reach a simulated disk
        with importing():
            from quire.engine import EmbeddedStore
            from quire.engine.layout import naming_salvage

        with naming_salvage(path):
            return EmbeddedStore.open(
                path, env=machine, create=create, background=background, **options
            )
    with importing():
        from .remote.ownership.election import Election

    election = Election(machine, path, options, background=background)
    return made(lambda: _own_or_join(machine, election, create), lambda store: store.close())


def _own_or_join(machine: Env, election: Election, create: bool) -> Store:
    joined = election.join_owner()
    locked: StoreLocked | None = None
    deadline = 0.0
    while joined is None:
        try:
            return election.own(create=create)
        except StoreLocked as error:
            begun = str(error) != str(locked)  # another process than before
            if begun:
                deadline = machine.monotonic() + JOIN_SECONDS
            locked = error
        joined = election.join()
        if joined is not None:
            break
        private = election.forbidden() if begun else None
        if private is not None:
            raise StoreLocked(another_users(election.path, private)) from None
        if machine.monotonic() > deadline:
            raise StoreLocked(
                f"{locked} (it could not be joined over its socket: it may be stopped, or about to "
                "begin or end)"
            ) from None
        waiting(machine.sleep, JOIN_POLL_SECONDS)
    with importing():
        from .remote.client.joined_store import JoinedStore  # which an owner has no need of
        from .remote.ownership.succession import Succession

    return JoinedStore(Succession(election, joined), election.path)


def another_users(path: str, private: str) -> str:
    """The error for a store whose owner cannot be reached: `private` belongs to somebody else."""
    return (
        f"{path} is open in a process of another user (permission denied: this process may not use "
        f"{private}); a store is its user's alone, so run this as that user"
    )


def _open_over_network(
    url: str,
    tls: object,
    token: str | None,
    env: Env | None,
    *,
    share: bool,
    options: dict[str, Any],
) -> Store:
    """The store that is served there."""
    machine = check_env(env)
    call_timeout = check_seconds(options.pop("call_timeout", DEFAULT_CALL_TIMEOUT))
    if options or not share or not isinstance(machine, OsEnv):
        names = ", ".join(options) or ("env" if share else "share")
        raise InvalidArgument(
            f"{names}: a store behind a URL is joined as it is: give tls, token, call_timeout"
        )
    with importing():
        from .remote.client.joined_store import JoinedStore
        from .remote.client.network_owner import NetworkOwner
        from .remote.ownership.succession import Succession

    keep_standard_descriptors()
    owner = NetworkOwner(machine, url, _checked_tls(tls), call_timeout, _known_token(url, token))

    def join() -> Store:
        session = owner.join()
        return JoinedStore(Succession(owner, session), owner.path)

    return made(join, lambda store: store.close())


def connect(
    url: str,
    call_timeout: float = DEFAULT_CALL_TIMEOUT,
    *,
    tls: Tls | None = None,
    token: str | None = None,
) -> JoinedStore:
    """The store whose owner listens at `url`: quire+unix:///path, or quire://host:port.

    `call_timeout`: seconds that an owner which does not answer is waited for. `tls`: the
    certificates for a port, without which it is one of this machine; `token`: as for `open`. Raises
    ConnectionLost if nobody answers there, CertificateRefused, NotAllowed, and InvalidArgument for
    what is no such URL.
    """
    with importing():
        from quire.remote import JoinedStore

    checked = check_seconds(call_timeout)
    is_network = isinstance(url, str) and url.startswith(_NETWORK)
    known = _known_token(url, token) if is_network else None
    if known is None and token is not None:
        raise InvalidArgument(f"{url!r:.200} goes without token: it is for quire://host:port")
    keep_standard_descriptors()
    return made(
        lambda: JoinedStore.connect(url, call_timeout=checked, tls=_checked_tls(tls), token=known),
        JoinedStore.close,
    )


def _known_token(url: str, token: str | None) -> UserToken | None:
    """Return the token for the servers of the URL. Raises InvalidArgument."""
    with importing():
        from .remote.client.known_tokens import token_for

    return token_for(url, token)


def _checked_tls(tls: object) -> Tls | None:
    """Raises InvalidArgument for what is no Tls."""
    if tls is None:
        return None
    with importing():
        from quire.tls import Tls

    if not isinstance(tls, Tls):
        raise InvalidArgument(f"tls is {tls!r:.200}: give quire.Tls(ca=..., cert=..., key=...)")
    return tls


def _open_in_memory(env: Env | None, *, create: bool, **options: Any) -> Store:
    if env is not None:
        raise InvalidArgument("a store in memory is in no env: give a path, or no env")
    if not create:
        raise InvalidArgument("a store in memory is always a new one: leave create out")
    with importing():
        from quire.engine import EmbeddedStore

    return EmbeddedStore.open(None, **options)


def serve(
    path: str,
    linger: float | None = None,
    *,
    create: bool = True,
    wait: bool = True,
    listen: Sequence[str] = (),
    tls: Tls | None = None,
    insecure: bool = False,
    users: str | None = None,
    audit: str | None = None,
    grace: float = 0.0,
    heartbeat: float | None = None,
    limits: Mapping[str, float | None] | None = None,
    metrics: str | None = None,
    metrics_tls: Tls | None = None,
    say: Callable[[str], None] | None = None,
    **options: Any,
) -> None:
    """Own the store at `path` and serve it until SIGTERM or SIGINT, and then close it.

    `listen`: "host:port" of ports at which it is served to other machines, too, over TLS, whether
    or not this process owns it: clients are relayed to the owner while another one does. `tls`
    names the certificate and key of this server and, as `ca`, the authority of its clients, who
    must have a certificate of it; on loopback `ca` may be left out, and with `insecure` TLS.
    `users`: the file of those who are let in at these ports, each with his rights; `ca` may be left
    out then. It is read again when it changes. `audit`: a file of what they change and are refused.
    `grace`: seconds that open transactions of clients have to end after the signal, while no
    further ones are begun. `heartbeat`: seconds without a sign of a client at a port, after which
    this process, as the owner, ends its connection (30). `limits`: {"connections": 1000}, of what
    all clients together may have in use (docs/security.md). `metrics`: "host:port" at which metrics
    and probes are answered by HTTP, with `metrics_tls` by HTTPS, from the beginning on
    (docs/operations.md).

    Where another process owns it, this one has joined, and takes over when that one ends, if it is
    the first of those that wait; without `wait` StoreLocked is raised. With `linger`, also end when
    no client has been connected for that many seconds, and when a write or sync of the store has
    failed: the next one opens it anew and recovers. `say` is given a line for each port, one for
    each process that owns the store before this one, one when others can join this one, with the
    process id, the path and the URL, and one at each SIGHUP, which makes a checkpoint: the store's
    status, as JSON. A service manager is told too (NOTIFY_SOCKET), who waits is ready as well.
    Raises what `open` raises.
    """
    with importing():
        from quire.remote import stop_on_signals

        from .remote.ownership.election import Election

    path, env, say = checked_path(path), OsEnv(), say or _log.info
    grace = check_seconds(grace) if grace else 0.0
    access = _access(env, users, audit)
    prepare = _preparing(env, heartbeat, limits or {})
    with ExitStack() as ending:
        watch = ending.enter_context(_watching(metrics, _checked_tls(metrics_tls), say))
        ports = _ports(env, path, listen, _checked_tls(tls), access, insecure=insecure)
        if ports is not None:
            ending.callback(ports.close)
        election = Election(env, path, options, owner="quire serve")
        end = ending.enter_context(stop_on_signals())
        opening = _own_or_join(env, election, create) if wait else election.own(create=create)
        serving = _Serving(env, path, prepare, ports, watch, linger, grace, say)
        _serve(serving, opening, end)


class _Serving(NamedTuple):
    """How a process serves a store."""

    env: Env
    path: str
    prepare: Prepare
    ports: ServedPorts | None
    watch: MetricsServer | None
    linger: float | None
    grace: float
    say: Callable[[str], None]


def _serve(serving: _Serving, opened: Store, end: SignalFlag) -> None:
    """Serve the store, while this process owns it and before, until the end."""
    with importing():
        from quire.remote import STOPPING, notify, on_hangup

    env, path, prepare, ports, watch, linger, grace, say = serving
    with opened as store:
        if watch is not None:
            watch.show(store)
        if ports is not None:
            ports.open(lambda: _server_of(store, prepare))
            for url in ports.urls:
                say(f"listening: {url}")
        with on_hangup(lambda: _tell_status(store, say)):
            owned = _in_turn(store, end, say)
            if owned is not None:
                _serve_others(owned, prepare, linger, end, say, grace)
            elif ports is not None and grace:
                ports.drain(grace)
        has_failed = linger is None and owned is not None and owned.failed
        goes_on = ports is not None and ports.relays and has_failed
        if not goes_on:
            notify(STOPPING)
    if watch is not None:
        watch.show(None)
    if goes_on and ports is not None:
        has_failed = not _relay_to_others(env, path, ports, end, say, grace)
    if has_failed:
        raise _failed_store(path)


def _failed_store(path: str) -> StoreFailed:
    """Return the error of a server whose store has failed."""
    return StoreFailed(
        f"a write or sync of {path} failed, or its directory was moved or removed: the store is let"
        " go of; who opens it next, where it is now, recovers it"
    )


@contextmanager
def _watching(
    address: str | None, tls: Tls | None, say: Callable[[str], None]
) -> Iterator[MetricsServer | None]:
    """Serve metrics and probes, if that is asked for. Raises InvalidArgument, RemoteError."""
    if address is None:
        if tls is not None:
            raise InvalidArgument("metrics_tls is for metrics: give metrics, too")
        yield None
        return
    with importing():
        from .metrics.metrics_server import MetricsServer

    with MetricsServer(address, tls=tls) as server:
        say(f"metrics: {server.url}/metrics")
        yield server


def _ports(
    env: Env,
    path: str,
    listen: Sequence[str],
    tls: Tls | None,
    access: UserAccess | None,
    *,
    insecure: bool,
) -> ServedPorts | None:
    """Bind the ports, before anybody is made to wait. Raises InvalidArgument, RemoteError."""
    if not listen:
        if tls is not None or insecure or access is not None:
            raise InvalidArgument("certificates, or none, and users are for a port: give listen")
        return None
    return_large_blocks()  # which clients elsewhere send and ask for, many at a time
    with importing():
        from .remote.ownership.served_ports import ServedPorts

    return ServedPorts(env, path, listen, tls, access, insecure=insecure)


def _access(env: Env, users: str | None, audit: str | None) -> UserAccess | None:
    """Read the file of users, if there is one. Raises NotFound, InvalidArgument."""
    if users is None:
        if audit is not None:
            raise InvalidArgument("audit is of users: give users, too")
        return None
    with importing():
        from .remote.access.user_access import UserAccess

    return UserAccess(env, users, audit)


def _owned(store: Store) -> SharedStore | None:
    """The store that a store object has, if this process owns it by now."""
    with importing():
        from .remote.client.joined_store import JoinedStore

    if not isinstance(store, JoinedStore):
        return cast("SharedStore", store)
    return cast("SharedStore", store.owner) if store.role == "owner" else None


Prepare = Callable[["SharedStore"], "StoreServer"]


def _preparing(env: Env, seconds: float | None, limits: Mapping[str, float | None]) -> Prepare:
    """Return what makes the server of an owned store, once, with these settings.

    Raises InvalidArgument.
    """
    heartbeat = None if seconds is None else float(check_seconds(seconds))
    if limits:
        with importing():
            from .remote.access.use_limits import check_limits

        check_limits(limits)

    def prepare(owned: SharedStore) -> StoreServer:
        server = owned.share(env)
        if heartbeat is not None:
            server.expect_heartbeats(heartbeat)
        if limits:
            server.accounts.limit(limits)
        return server

    return prepare


def _server_of(store: Store, prepare: Prepare) -> StoreServer | None:
    owned = _owned(store)
    return None if owned is None else prepare(owned)


def _in_turn(store: Store, end: SignalFlag, say: Callable[[str], None]) -> SharedStore | None:
    """The store, once this process owns it; None if it is to end before."""
    with importing():
        from quire.remote import READY, JoinedStore, notify
        from quire.remote.limits import LOOK_SECONDS

    owner = 0
    while (owned := _owned(store)) is None:
        assert isinstance(store, JoinedStore)
        if owner != store.owner_process_id:
            owner = store.owner_process_id
            if owner == os.getpid():
                raise StoreLocked(
                    f"{store.path} is open in this process (pid {owner}), which would wait for "
                    "itself; close the store there, or share the open one"
                )
            say(f"waiting: process {owner} owns {store.path}; process {os.getpid()} has joined it")
            notify(f"{READY}\nSTATUS=waiting: process {owner} owns {store.path}")
        if end.wait(LOOK_SECONDS):
            return None
    return owned


def _serve_others(
    store: SharedStore,
    prepare: Prepare,
    linger: float | None,
    end: SignalFlag,
    say: Callable[[str], None],
    grace: float,
) -> None:
    with importing():
        from quire.remote import READY, notify
        from quire.remote.server.shutdown import Shutdown

    server = prepare(store)
    say(f"ready: process {os.getpid()} serves {store.path} at {server.wait_started()}")
    notify(f"{READY}\nSTATUS=owns {store.path}")
    shutdown = Shutdown(end, grace)
    store.on_shutdown(shutdown.request)
    server.wait_until_idle(linger, end)
    seconds = shutdown.begin()
    if seconds and not store.failed:
        store.note_drain()
        server.drain(seconds, shutdown.is_over)


def _relay_to_others(
    env: Env,
    path: str,
    ports: ServedPorts,
    end: SignalFlag,
    say: Callable[[str], None],
    grace: float,
) -> bool:
    """Let clients in at the ports while another process owns the store that has failed here.

    False: no process does any more. True: a signal has come before.
    """
    with importing():
        from quire.remote import READY, STOPPING, notify
        from quire.remote.limits import LOOK_SECONDS

        from .engine.layout import Layout
        from .remote.client.joining import begin_session

    lock = Layout(path).lock
    until = env.monotonic() + LOOK_SECONDS
    while not end.wait(JOIN_POLL_SECONDS):
        session = begin_session(env, path, DEFAULT_CALL_TIMEOUT)
        if session is not None:
            with closing(session):
                owner = session.connection.owner_process_id
                say(f"relaying: process {owner} owns {path}, which has failed here")
                notify(f"{READY}\nSTATUS=relaying: process {owner} owns {path}")
                while not (session.connection.lost or end.wait(LOOK_SECONDS)):
                    pass
            until = env.monotonic() + LOOK_SECONDS
        elif not env.is_locked(lock) and env.monotonic() > until:
            notify(STOPPING)
            return False
    notify(STOPPING)
    if grace:
        ports.drain(grace)
    return True


def _tell_status(store: Store, say: Callable[[str], None]) -> None:
    try:
        store.admin.checkpoint()
        say(f"status: {json.dumps(store.status())}")
    except QuireError as error:
        say(f"no checkpoint: {type(error).__name__}: {error}")


def open_or_serve(
    path: str, linger: float = 30.0, *, create: bool = True, network_file_system: bool = False
) -> JoinedStore:
    """Join the owner of the store at `path`; where there is none, start a process that owns it.

    That process ends once no client has been connected for `linger` seconds, or when the store has
    failed: the next call starts another one. `network_file_system`: it may own a store on one,
    where any other process would be refused. Raises StoreNotFound
    and InvalidArgument as `open` does, and StoreFailed, with what that process said, if the store
    cannot be opened.
    """
    with importing():
        from quire.remote import OwnerProcess, join

    path = checked_path(path)
    env = OsEnv()
    joined = join(env, path)
    if joined is not None:
        return joined
    # The engine: others do without it.
    with importing():
        from quire.engine.layout import Layout

        from .engine.checkpoints.store_files import errors_of_path, prepare_directory

    layout = Layout(path)
    with errors_of_path(layout):
        prepare_directory(env, layout, create)
    deadline = env.monotonic() + START_SECONDS
    started: OwnerProcess | None = None
    retry_at = 0.0
    while True:
        joined = join(env, path)
        if joined is not None:
            return joined
        now = env.monotonic()
        if started is not None and started.has_failed:
            raise StoreFailed(f"the owner of {path} did not start: {started.last_log_line()}")
        if now > deadline:
            line = "" if started is None else started.last_log_line()
            raise StoreFailed(f"the owner of {path} cannot be joined; its log says: {line}")
        if started is None or (not started.is_running and now >= retry_at):
            allowed = ("--network-file-system",) if network_file_system else ()
            started = OwnerProcess(env, path, linger, create=create, further=allowed)
            retry_at = now + 1.0
        env.sleep(JOIN_POLL_SECONDS)


def checked_path(path: object) -> str:
    """The absolute path of a store on a disk. Raises InvalidArgument for what is no such path."""
    try:
        text = os.fsdecode(path)  # type: ignore[arg-type]
    except TypeError:
        text = ""
    if not text or "\0" in text:  # the first would be the working directory
        in_memory = "" if path is not None else f", or {IN_MEMORY!r} for a store in memory"
        raise InvalidArgument(f"path is {path!r}: give the path of a directory{in_memory}")
    if _URL.match(text):
        raise InvalidArgument(
            f"{text!r} is a URL: give the path of a directory; quire.open takes quire://host:port, "
            "quire.connect the URL of an owner's socket"
        )
    if text == IN_MEMORY:
        raise InvalidArgument(
            f"{text!r} is a store in the memory of one process, which opens it by quire.open: give "
            "the path of a directory"
        )
    try:
        return os.path.abspath(text)
    except FileNotFoundError:
        raise InvalidArgument(
            f"path {text!r} begins in the working directory, which is not there any more: go to "
            "another one, or give a path from / on"
        ) from None

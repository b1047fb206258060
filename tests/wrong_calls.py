"""Wrong calls that mypy finds in every form of a store: each is ignored here, and has to be.

Nothing runs this. `make check` does not pass with an ignore that is not needed: so a form in which
one of them is not found any more is noticed.
"""

from __future__ import annotations

from quire import Store
from quire.aio import AsyncStore
from quire.engine import EmbeddedStore
from quire.remote import RemoteStore
from quire.remote.elected_store import ElectedStore


def of_the_interface(store: Store) -> None:
    """A misspelt option, a wrong type, a missing argument; of the core and of a namespace."""
    store.alter_queue("q", capasity=1)  # type: ignore[call-arg]
    store.alter_queue("q", capacity="1")  # type: ignore[arg-type]
    store.alter_queue()  # type: ignore[call-arg]
    store.cron.alter("s", pausd=True)  # type: ignore[call-arg]
    store.admin.purge(5)  # type: ignore[arg-type]
    store.integration.lease("q", 0)  # type: ignore[call-arg]
    store.recover()  # type: ignore[attr-defined]


def embedded(store: EmbeddedStore) -> None:
    """The same where the store is this process's."""
    store.alter_queue("q", capasity=1)  # type: ignore[call-arg]
    store.alter_queue("q", capacity="1")  # type: ignore[arg-type]
    store.alter_queue()  # type: ignore[call-arg]
    store.cron.alter("s", pausd=True)  # type: ignore[call-arg]
    store.admin.purge(5)  # type: ignore[arg-type]
    store.integration.lease("q", 0)  # type: ignore[call-arg]


def joined(store: RemoteStore) -> None:
    """Where it is another one's."""
    store.alter_queue("q", capasity=1)  # type: ignore[call-arg]
    store.alter_queue("q", capacity="1")  # type: ignore[arg-type]
    store.alter_queue()  # type: ignore[call-arg]
    store.cron.alter("s", pausd=True)  # type: ignore[call-arg]
    store.admin.purge(5)  # type: ignore[arg-type]
    store.integration.lease("q", 0)  # type: ignore[call-arg]


def elected(store: ElectedStore) -> None:
    """Where owners come and go."""
    store.alter_queue("q", capasity=1)  # type: ignore[call-arg]
    store.alter_queue("q", capacity="1")  # type: ignore[arg-type]
    store.alter_queue()  # type: ignore[call-arg]
    store.cron.alter("s", pausd=True)  # type: ignore[call-arg]
    store.admin.purge(5)  # type: ignore[arg-type]
    store.integration.lease("q", 0)  # type: ignore[call-arg]


async def for_asyncio(store: AsyncStore) -> None:
    """Where calls are awaited."""
    await store.alter_queue("q", capasity=1)  # type: ignore[call-arg]
    await store.alter_queue("q", capacity="1")  # type: ignore[arg-type]
    await store.alter_queue()  # type: ignore[call-arg]
    await store.cron.alter("s", pausd=True)  # type: ignore[call-arg]
    await store.admin.purge(5)  # type: ignore[arg-type]
    await store.integration.lease("q", 0)  # type: ignore[call-arg]

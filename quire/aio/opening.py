"""Opening a store for asyncio."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from quire import opening

from .coroutines import Beginning
from .pool import Pool
from .store import AsyncStore


def open(path: str | os.PathLike[str], **options: Any) -> Beginning[AsyncStore]:
    """Open the store at `path` as `quire.open` does, with the same options; await it.

    Or use it as `async with quire.aio.open(path) as store`. Raises what `quire.open` raises.
    """
    return Beginning(partial(_open, path, options))


async def _open(path: str | os.PathLike[str], options: dict[str, Any]) -> AsyncStore:
    pool = Pool()
    try:
        inner = await pool.run(partial(opening.open, path, **options), lambda inner: inner.close())
    except BaseException:
        pool.close()
        raise
    return AsyncStore(inner, pool)

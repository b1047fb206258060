"""The ledger's second entry of a streaming query: the input of its last committed micro-batch.

YN1. A micro-batch is taken for one that is committed only if it is the last that is, and its input
    is the same. Otherwise it is refused, and nothing of it is written.
YN2. An input that was not known when it was committed (the ledger of an earlier release; a
    checkpoint that cannot be seen) is taken for the same: its number is all that there is.

The entry is a version, as all are: the micro-batch's number, then the digest of its input
(offset_log.py, YD2). So it rises from micro-batch to micro-batch, as the ledger demands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.errors import InputChanged
from quire.spark_graphs.limits import DIGEST_BITS

from .offset_log import UNKNOWN

if TYPE_CHECKING:
    from quire.interface.store import Store

_ADVICE = (
    "Nothing was written. Spark's checkpoint has lost files, was put back from an older copy, or "
    "is used by two queries. Put back its files as they were at that commit; or start the query "
    "with a new checkpoint, and with starting offsets behind what is committed (docs/spark.md, "
    "'When the checkpoint and the store differ')"
)


def input_key(key: str) -> str:
    """The second entry's key, from the first one's."""
    return f"{key}#input"


def version_of(batch_id: int, digest: int) -> int:
    """The second entry's version."""
    return batch_id << DIGEST_BITS | digest


def check_same(store: Store, key: str, batch_id: int, digest: int, last: int) -> None:
    """Raise InputChanged unless it is the micro-batch `last`, the last committed one (YN1)."""
    if batch_id != last:
        raise InputChanged(
            f"micro-batch {batch_id} was planned anew, and the store {store.path} has those of "
            f"the same query up to {last}. {_ADVICE}"
        )
    entry = store.integration.ledger(input_key(key))
    committed = UNKNOWN if entry is None else entry & ((1 << DIGEST_BITS) - 1)
    if committed == UNKNOWN or entry is None or entry >> DIGEST_BITS != last:
        return  # YN2
    if digest == UNKNOWN:
        raise InputChanged(
            f"micro-batch {batch_id} is committed in the store {store.path}, and whether its input "
            "is the same now cannot be seen: the query's checkpoint is not where this machine "
            f"finds it, as it did then. Start the query once with the checkpoint where it was. "
            f"{_ADVICE}"
        )
    if digest != committed:
        raise InputChanged(
            f"micro-batch {batch_id} is committed in the store {store.path} with another input "
            f"than Spark has planned for it now. {_ADVICE}"
        )

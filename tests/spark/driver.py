"""A program with a streaming query of its own, for tests that kill it.

python -m tests.spark.driver STORE CHECKPOINT CONTROL FORMAT [MASTER]
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

from tests.spark.queries import sink, spread, stream
from tests.spark.session import LOCAL, start_session

OUTPUTS = ("out-a", "out-b", "out-c")


def main(store_path: str, checkpoint: str, control: str, format: str, master: str = "") -> None:
    """Copy `in` to three queues, in micro-batches, until there is no more."""
    session = start_session(Path(control), master or LOCAL)
    store = SimpleNamespace(path=store_path)
    rows = spread(stream(session, store, "in", maxMessagesPerTrigger=40), *OUTPUTS)
    written = sink(rows, store, Path(checkpoint), format, control=control)
    written.trigger(availableNow=True).start().awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

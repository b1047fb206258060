"""The loggers of Quire: one tree, `quire`, silent until the program says where it goes.

| logger | tells of |
|---|---|
| `quire.archive` | gaps of an archive, why nothing is shipped, damage that a restore avoids |
| `quire.callbacks` | callbacks of programs that raised, listeners that have ended |
| `quire.disk` | a disk that is nearly full, or is not any more |
| `quire.databases` | messages of an outbox that were refused, and what a relay waits for |
| `quire.metrics` | a port of metrics that cannot answer |
| `quire.opening` | an owner that serves: the lines of `quire serve` |
| `quire.queue_types` | queues whose type's code is missing, or failed |
| `quire.recovery` | what an opening has cut off the journal's end |
| `quire.reports` | reports that senders ask for, and whose queues do not take them |
| `quire.remote` | stores that cannot be shared, clients that are cut off |
| `quire.schedules` | messages that a schedule could not put |
| `quire.workers` | handlers that failed, or did not end in time |
| `quire.spark_graphs` | what Spark's processes could not tidy up |
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Final

FIELDS: Final = "quire"
"""The attribute of a log record that has what it tells of by name: a queue, messages, ..."""


class ToStandardError(logging.Handler):
    """Warnings and errors, as Python shows them where a program has not set up logging."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show it, unless the program shows it already."""
        shown = logging.lastResort
        if shown is None or logging.getLogger().handlers:
            return
        if record.levelno >= shown.level:
            shown.handle(record)


def logger(name: str) -> logging.Logger:
    """One of the tree."""
    return logging.getLogger(name)


def log_failure(
    logger: logging.Logger, error: BaseException, text: str, *arguments: object
) -> None:
    """Log the error, in the midst of what must go on.

    A logging handler that raises is told of as `logging` does it.
    """
    try:
        logger.error(text, *arguments, exc_info=error)
    except Exception:  # noqa: BLE001 - of somebody else's code; it is shown
        if logging.raiseExceptions and sys.stderr:
            traceback.print_exc()


def log_warning(logger: logging.Logger, text: str, *arguments: object) -> None:
    """Log a line, in the midst of what must go on; as `log_failure`."""
    try:
        logger.warning(text, *arguments)
    except Exception:  # noqa: BLE001 - of somebody else's code; it is shown
        if logging.raiseExceptions and sys.stderr:
            traceback.print_exc()


def show_warnings(name: str) -> None:
    """For processes of which nobody else sets up the logging: the command line's, and Spark's."""
    logger = logging.getLogger(name)
    if not any(isinstance(handler, ToStandardError) for handler in logger.handlers):
        logger.addHandler(ToStandardError())


logging.getLogger("quire").addHandler(logging.NullHandler())
show_warnings("quire.spark_graphs")

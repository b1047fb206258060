"""Log records as lines of JSON, for those who collect logs by program."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from .loggers import FIELDS, ToStandardError


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON: time, level, logger, message, error, fields.

    Those of a record of `quire.workers`: handler, source, queue, messages, delivery, outcome.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        line |= getattr(record, FIELDS, {})
        return json.dumps(line, default=str)


def log_as_json(level: int = logging.WARNING) -> logging.Handler:
    """Have what the command line logs go to standard error as lines of JSON; the handler."""
    tree = logging.getLogger("quire")
    for handler in list(tree.handlers):
        if isinstance(handler, ToStandardError):
            tree.removeHandler(handler)
    shown = logging.StreamHandler()
    shown.setLevel(level)
    shown.setFormatter(JsonLines())
    tree.addHandler(shown)
    return shown

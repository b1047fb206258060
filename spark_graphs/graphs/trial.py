"""A step's function is tried before anything runs: with no messages, its effect is dropped."""

from __future__ import annotations

import logging
from typing import Final

from quire.errors import InvalidArgument

from .inputs import empty
from .values import KeptValues
from .work import Work, whole

_log: Final = logging.getLogger("quire.spark_graphs")


def try_out(work: Work) -> None:
    """Raise what Spark, or the rules of outputs, find wrong with what a function returns.

    Other errors of the function are its own: it may not expect to have no messages at all. A
    terminal is not tried, since what it does cannot be dropped; a streaming step is by its start.
    """
    from pyspark.errors import AnalysisException

    if work.step.kind != "step":
        return
    values = KeptValues(work.step.name, {})
    inputs = [empty(queue, work.tasks, work.schemas.get(queue)) for queue in work.step.inputs]
    try:
        work.called(inputs, whole(inputs), -1, lambda: values)
    except (AnalysisException, InvalidArgument):
        raise
    except Exception as error:  # noqa: BLE001 - it is told when there are messages
        _log.info("step %s fails without messages: %s", work.step.name, error)

"""A step's function is tried before anything runs: with no messages, its effect is dropped."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

from quire.errors import InvalidArgument

from .definition import Step
from .inputs import empty
from .values import KeptValues
from .work import Work, whole

_log: Final = logging.getLogger("quire.spark_graphs")


@contextlib.contextmanager
def analysed(step: Step) -> Iterator[None]:
    """What Spark finds wrong with a step's plan is an InvalidArgument that names the step."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        raise InvalidArgument(f"step '{step.name}': Spark cannot plan it: {error}") from error


def try_out(work: Work) -> None:
    """Raise what Spark, or the rules of outputs, find wrong with what a function returns.

    Other errors of the function are its own: it may not expect to have no messages at all. A
    terminal is not tried, since what it does cannot be dropped; a streaming step is by its start.
    """
    if work.step.kind != "step":
        return
    values = KeptValues(work.step.name, {})
    inputs = [empty(queue, work.tasks, work.schemas.get(queue)) for queue in work.step.inputs]
    try:
        with analysed(work.step):
            work.called(inputs, whole(inputs), -1, lambda: values)
    except InvalidArgument:
        raise
    except Exception as error:  # noqa: BLE001 - it is told when there are messages
        _log.info("step %s fails without messages: %s", work.step.name, error)

"""A step's function is tried before anything runs: with no messages, its effect is dropped."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

from quire.errors import InvalidArgument
from quire.libraries.late_imports import importing
from quire.spark_graphs.graphs.batches.batch_inputs import empty
from quire.spark_graphs.graphs.definition import Step
from quire.spark_graphs.graphs.spark.error_reason import told
from quire.spark_graphs.graphs.spark.quiet_errors import quiet

from .kept_values import KeptValues
from .step_function import StepWork, whole

_log: Final = logging.getLogger("quire.spark_graphs")


@contextlib.contextmanager
def analysed(step: Step) -> Iterator[None]:
    """What Spark finds wrong with a step's plan is an InvalidArgument that names the step."""
    with importing():
        from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        raise InvalidArgument(f"step '{step.name}': Spark cannot plan it: {error}") from error


def try_out(work: StepWork) -> None:
    """Raise what is wrong with a function, or with what it returns, whatever the messages are.

    Other errors it may have because it does not expect to have no messages at all: they are told
    in the log. A terminal is not tried, since what it does cannot be dropped; a streaming step is
    by its start.
    """
    if work.step.kind != "step":
        return
    values = KeptValues(work.step.name, {})
    inputs = [empty(queue, work.tasks, work.schemas.get(queue)) for queue in work.step.inputs]
    try:
        with analysed(work.step), quiet():
            work.called(inputs, whole(inputs), -1, lambda: values)
    except InvalidArgument:
        raise
    except Exception as error:
        name = work.step.name
        if not _may_be_for_lack(error):
            raise InvalidArgument(
                f"step '{name}': its function fails, and no message is at fault: {told(error)}"
            ) from error
        _log.warning("step %s fails without messages: %s", name, told(error).partition("\n")[0])


def _may_be_for_lack(error: Exception) -> bool:
    """Whether a function may fail so only since there are no messages: of a None, or of nothing."""
    with importing():
        from pyspark.errors import PySparkAttributeError, PySparkTypeError

    if isinstance(error, UnboundLocalError):  # of a loop over no rows
        return True
    if isinstance(error, (NameError, ImportError, SyntaxError, NotImplementedError)):
        return False
    if isinstance(error, (PySparkAttributeError, PySparkTypeError)):
        return False
    if isinstance(error, AttributeError):
        return error.obj is None
    return not isinstance(error, TypeError) or "NoneType" in str(error)

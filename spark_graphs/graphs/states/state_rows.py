"""A keyed state, as the function of a step gets it.

- The rows are those of one commit, for all that a batch asks for (YST1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.definitions.row_schema import schema_of_words, words_of
from quire.errors import InvalidArgument
from quire.libraries import pa
from quire.libraries.late_imports import importing
from quire.spark_graphs.graphs.spark.local_rows import local_frame, spark_schema
from quire.spark_graphs.graphs.step_state import StepState
from quire.spark_graphs.writing.row_sink import check_fit

from .batch_states import BatchState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class StateRows:
    """The rows of a keyed state, in the function of a step."""

    def __init__(
        self,
        state: StepState,
        spark: SparkSession,
        looked: BatchState | None,
        *,
        by_tasks: bool,
        in_one_task: bool = False,
    ) -> None:
        """`looked`: None: it has no rows, as the function is only tried."""
        self._state = state
        self._spark = spark
        self._looked = looked
        self._by_tasks = by_tasks
        self._in_one_task = in_one_task

    def __repr__(self) -> str:
        return f"<StateRows {self.name}>"

    @property
    def name(self) -> str:
        """The name of the state."""
        return self._state.name

    @property
    def schema(self) -> StructType:
        """The columns of its rows."""
        return spark_schema(self._state.schema)

    def rows(self, of: DataFrame) -> DataFrame:
        """Return the rows that the state has for the keys of a DataFrame, each once.

        `of`: has the columns of the key; nulls and keys without a row are passed over. What the
        batch itself returns for the state is not in it. Raises InvalidArgument, and what Spark
        raises where it makes the keys.
        """
        keys = self._keys(of)
        if self._looked is not None and self._by_tasks:
            return self._looked.find_by_tasks(keys, self.schema)
        if self._looked is None:
            found = pa.RecordBatch.from_pylist([], schema=schema_of_words(self._state.schema))
        else:
            found = self._looked.find(keys)
        rows = local_frame(self._spark, pa.Table.from_batches([found]), self.schema)
        # Where the other rows are one partition, too, a join by hashes needs no job of its own, as
        # one that sends these rows to all tasks does.
        return rows.coalesce(1).hint("shuffle_hash") if self._in_one_task else rows

    def _keys(self, of: DataFrame) -> DataFrame:
        with importing():
            from pyspark.sql import functions as f

        if not hasattr(of, "columns") or not hasattr(of, "select"):
            raise InvalidArgument(
                f"rows of state '{self.name}': give a DataFrame of Spark with the columns of the "
                f"key ({', '.join(self._state.key)}), not {type(of).__name__}"
            )
        lacking = [each for each in self._state.key if each not in of.columns]
        if lacking:
            raise InvalidArgument(
                f"rows of state '{self.name}': the DataFrame has no column {lacking[0]!r}, which "
                f"is of the key; it has {', '.join(of.columns)}"
            )
        keys = of.select(*(f.col(f"`{each}`") for each in self._state.key))
        nullable = [each.with_nullable(True) for each in schema_of_words(self._state.schema)]
        try:
            check_fit(keys.schema, words_of(pa.schema(nullable[: self._state.key_columns])))
        except InvalidArgument as error:
            raise InvalidArgument(f"rows of state '{self.name}': {error}") from None
        return keys

"""The entry for Spark's `format("quire")`: Spark imports every top-level module `pyspark_*`.

One such module that fails disables the look-up of all, so this one imports nothing but PySpark, in
whose workers it runs, and the connector itself only when the format is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quire.spark_graphs.source import QuireDataSource

try:
    from pyspark.sql.datasource import DataSource as _DataSource
except ImportError:  # without PySpark there is nobody to look
    pass
else:

    class DefaultSource(_DataSource):
        """Hands everything on to the connector."""

        _plans = True

        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            self._load = self._source().load  # as in QuireDataSource
            self._loaded: str | None = None

        def __setstate__(self, state: dict[str, Any]) -> None:
            self.__dict__.update(state)
            self._plans = False  # as in QuireDataSource

        @classmethod
        def name(cls) -> str:
            return "quire"

        def schema(self) -> Any:
            source = self._source()
            found = source.schema()
            self._loaded = source.loaded
            return found

        def reader(self, schema: Any) -> Any:
            return self._source().reader(schema)

        def streamReader(self, schema: Any) -> Any:
            return self._source().streamReader(schema)

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return self._source().writer(schema, overwrite)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return self._source().streamWriter(schema, overwrite)

        def _source(self) -> QuireDataSource:
            from quire.spark_graphs.source import QuireDataSource

            source = QuireDataSource(self.options)
            source.plans = self._plans
            source.load = getattr(self, "_load", source.load)
            source.loaded = getattr(self, "_loaded", None)
            return source

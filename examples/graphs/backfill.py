"""The same function for what comes and for what was there: a backfill into another queue.

python -m examples.graphs.backfill STORE
"""

import sys

from pyspark.sql import DataFrame, SparkSession

import quire
from quire.spark_graphs import Graph


def graph(spark: SparkSession, path: str) -> Graph:
    """readings -> celsius, of a topic that keeps what was read"""
    g = Graph("weather", spark, path)
    g.queue("readings", keep_forever=True)

    @g.step(reads="readings", writes="celsius")
    def convert(readings: DataFrame) -> DataFrame:
        degrees = "round((cast(cast(payload as string) as double) - 32) / 1.8, 1)"
        return readings.selectExpr(f"cast({degrees} as string) as payload")

    return g


def main(spark: SparkSession, path: str) -> None:
    """The readings of a while ago once more; asked for again, it has no effect."""
    g = graph(spark, path)
    with g.start() as run, quire.open(path) as store:
        store.put_many("readings", [b"32", b"50", b"212"])
        run.drain()
        print(store.browse("celsius").payloads())
        again = [g.backfill("convert", 0, 2, to={"celsius": "again"}) for _ in range(2)]
        print(again, store.browse("again").payloads())


if __name__ == "__main__":
    main(SparkSession.builder.getOrCreate(), sys.argv[1])

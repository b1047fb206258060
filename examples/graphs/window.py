"""Count clicks by the minute: a window with a watermark, which Spark's streaming keeps.

python -m examples.graphs.window STORE
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import quire
from quire.spark_graphs import Graph


def graph(spark: SparkSession, path: str) -> Graph:
    """clicks -> minutes"""
    g = Graph("clicks", spark, path)
    g.queue("clicks")

    @g.step(reads="clicks", writes="minutes", watermark="1 millisecond")
    def by_window(clicks: DataFrame) -> DataFrame:
        counted = clicks.groupBy(f.window("time", "1 millisecond")).count()
        return counted.select(f.col("count").cast("string").alias("payload"))

    return g


def main(spark: SparkSession, path: str) -> None:
    """A window is told when later messages have come: the last one waits for them."""
    with graph(spark, path).start() as run, quire.open(path) as store:
        store.put_many("clicks", [b"click"] * 5)
        run.drain()
        for _ in range(2):
            store.put("clicks", b"later")
            run.drain()
        print(store.browse("minutes").payloads()[:1])


if __name__ == "__main__":
    main(SparkSession.builder.getOrCreate(), sys.argv[1])

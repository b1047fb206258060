"""A terminal: messages leave the store for Parquet files, once for each batch.

python -m examples.graphs.to_parquet STORE
"""

import sys

from pyspark.sql import DataFrame, SparkSession

import quire
from quire.spark_graphs import Graph


def graph(spark: SparkSession, path: str) -> Graph:
    """invoices -> files"""
    g = Graph("lake", spark, path)
    g.queue("invoices")

    @g.terminal(reads="invoices")
    def lake(rows: DataFrame, batch: int) -> None:
        # A batch that is repeated, since the program was killed, writes over what it has written.
        kept = rows.selectExpr("id", "time", "cast(payload as string) as invoice")
        kept.write.mode("overwrite").parquet(f"{path}-lake/batch={batch}")

    return g


def main(spark: SparkSession, path: str) -> None:
    """Two batches, a folder each."""
    with graph(spark, path).start() as run, quire.open(path) as store:
        for invoices in ([b"apples 3", b"pears 5"], [b"plums 2"]):
            store.put_many("invoices", invoices)
            run.drain()
    found = spark.read.parquet(f"{path}-lake").orderBy("id")
    print([(row.batch, row.invoice) for row in found.collect()])


if __name__ == "__main__":
    main(SparkSession.builder.getOrCreate(), sys.argv[1])

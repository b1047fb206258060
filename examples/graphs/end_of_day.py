"""Sum up what lies between the ends of two days, in two queues.

python -m examples.graphs.end_of_day STORE
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import quire
from quire.spark_graphs import Graph


def graph(spark: SparkSession, path: str) -> Graph:
    """orders, payments -> days"""
    g = Graph("books", spark, path)
    g.queue("orders", schema="amount long")
    g.queue("payments", schema="amount long")

    @g.step(reads=["orders", "payments"], writes="days", marker="day")
    def close(orders: DataFrame, payments: DataFrame) -> DataFrame:
        # The marker is a message of the batch, too, whose amount is null.
        day = f.max("_meta.attributes.day")
        ordered = orders.agg(day.alias("day"), f.sum("amount").alias("ordered"))
        paid = payments.agg(f.sum("amount").alias("paid"))
        sums = "concat(day, ': ', ordered, ' ordered, ', paid, ' paid') as payload"
        return ordered.crossJoin(paid).selectExpr(sums)

    return g


def main(spark: SparkSession, path: str) -> None:
    """Each day ends in both queues at once; what comes later waits for the end of its own."""
    with graph(spark, path).start() as run, quire.open(path) as store:
        for day, ordered, paid in [("monday", [3, 5], [3]), ("tuesday", [2], [5, 2])]:
            store.put_many("orders", [{"amount": amount} for amount in ordered])
            store.put_many("payments", [{"amount": amount} for amount in paid])
            with store.transaction() as txn:
                for queue in ("orders", "payments"):
                    txn.put(queue, {"amount": None}, attributes={"day": day})
        store.put("orders", {"amount": 9})
        run.drain()
        print(store.browse("days").payloads(), run.status().steps["close"].lag_messages)


if __name__ == "__main__":
    main(SparkSession.builder.getOrCreate(), sys.argv[1])

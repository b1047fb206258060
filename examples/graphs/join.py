"""Join two queues that are written by the same transactions.

python -m examples.graphs.join STORE
"""

import sys

from pyspark.sql import DataFrame, SparkSession

import quire
from quire.spark_graphs import Graph


def graph(spark: SparkSession, path: str) -> Graph:
    """orders, payments -> invoices"""
    g = Graph("shop", spark, path)
    g.queue("orders")
    g.queue("payments")

    @g.step(reads=["orders", "payments"], writes="invoices", limit=1000)
    def match(orders: DataFrame, payments: DataFrame) -> DataFrame:
        ordered = orders.selectExpr("correlation_id", "cast(payload as string) as what")
        paid = payments.selectExpr("correlation_id", "cast(payload as string) as amount")
        both = ordered.join(paid, "correlation_id")
        return both.selectExpr("concat(what, ' for ', amount) as payload", "correlation_id")

    return g


def main(spark: SparkSession, path: str) -> None:
    """An order and its payment are put by one transaction, so each batch has both."""
    with graph(spark, path).start() as run, quire.open(path) as store:
        for number, (what, amount) in enumerate([("apples", 3), ("pears", 5), ("plums", 2)]):
            with store.transaction() as txn:
                txn.put("orders", what.encode(), correlation_id=f"order {number}")
                txn.put("payments", str(amount).encode(), correlation_id=f"order {number}")
        run.drain()
        print(sorted(store.browse("invoices").payloads()))


if __name__ == "__main__":
    main(SparkSession.builder.getOrCreate(), sys.argv[1])

"""Count words: one step splits lines, the next keeps how often each word has come.

python -m examples.graphs.word_count STORE
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import quire
from quire.spark_graphs import Graph


def graph(spark: SparkSession, path: str) -> Graph:
    """lines -> words -> counts"""
    g = Graph("words", spark, path)
    g.queue("lines")

    @g.step(reads="lines", writes="words")
    def split(lines: DataFrame) -> DataFrame:
        text = f.lower(f.col("payload").cast("string"))
        return lines.select(f.explode(f.split(text, " +")).alias("payload"))

    @g.step(reads="words", writes="counts")
    def count(words: DataFrame) -> DataFrame:
        state = g.state("count")
        for word, times in words.groupBy(f.col("payload").cast("string")).count().collect():
            state[word] = state.get(word, 0) + times
        changed = words.groupBy("payload").count()
        return changed.select(f.concat_ws(" +", "payload", "count").alias("payload"))

    return g


def main(spark: SparkSession, path: str) -> None:
    """Count what is put before the run and during it."""
    g = graph(spark, path)
    with g.start() as run, quire.open(path) as store:
        store.put_many("lines", [b"the quick brown fox", b"the lazy dog"])
        run.drain()
        store.put("lines", b"The dog barks")
        run.drain()
    print({word: times for word, times in g.state("count").items() if times > 1})


if __name__ == "__main__":
    main(SparkSession.builder.getOrCreate(), sys.argv[1])

"""Sessions of users: a row of a state for each, and timers in event time that end them.

python -m examples.graphs.sessions STORE
"""

import sys
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

import quire
from quire.spark_graphs import Graph, StateRows, keyed

GAP = 30 * 60 * 1_000_000  # microseconds, as all times below
SESSIONS = "array<struct<first: bigint, last: bigint, clicks: bigint>>"


def joined(parts: DataFrame) -> DataFrame:
    """Make one of all parts of a user's sessions between which there is no gap."""
    order = Window.partitionBy("user").orderBy("first")
    so_far = f.max("last").over(order.rowsBetween(Window.unboundedPreceding, -1))
    parts = parts.withColumn("begins", (f.col("first") >= so_far + GAP).cast("int"))
    parts = parts.withColumn("number", f.coalesce(f.sum("begins").over(order), f.lit(0)))
    ends = [f.min("first").alias("first"), f.max("last").alias("last")]
    return parts.groupBy("user", "number").agg(*ends, f.sum("clicks").alias("clicks"))


def rows_of(sessions: DataFrame) -> DataFrame:
    """Return a row for each user, due when the first of the sessions ends."""
    each = f.collect_list(f.struct("first", "last", "clicks"))
    due = f.timestamp_micros(f.min("last") + GAP).alias("_timer")
    return sessions.groupBy("user").agg(f.to_json(each).alias("sessions"), due)


def sessions_in(rows: DataFrame) -> DataFrame:
    """Return the sessions of such rows, beside their other columns."""
    return rows.selectExpr("* except (sessions)", f"inline(from_json(sessions, '{SESSIONS}'))")


def close(due: DataFrame, open: StateRows) -> dict[str, DataFrame]:
    """Put the sessions that have ended, and keep the others."""
    ended = f"last + {GAP} <= unix_micros(_timer) as ended"
    sessions = sessions_in(due).selectExpr("*", ended)
    kept = rows_of(sessions.where("not ended"))
    gone = due.join(kept, "user", "left_anti").selectExpr("user", "true as _delete")
    text = "concat(user, ': ', clicks, ' in ', (last - first) div 60000000, ' minutes') as payload"
    return {
        "sessions": sessions.where("ended").selectExpr(text),
        "open": kept.unionByName(gone, allowMissingColumns=True),
    }


def graph(spark: SparkSession, path: str) -> Graph:
    """web, app -> sessions"""
    g = Graph("visits", spark, path)
    for queue in ("web", "app"):
        g.queue(queue, schema="user string, at timestamp")
    columns = "user string, sessions string"
    open_ = keyed("open", "user", columns, on_timer=close, event_time="at", delay="5 min")

    @g.step(reads=["web", "app"], writes="sessions", state=open_)
    def gather(web: DataFrame, app: DataFrame, open: StateRows) -> dict[str, DataFrame]:
        clicks = web.unionByName(app)
        time = "unix_micros(at)"
        new = clicks.selectExpr("user", f"{time} as first", f"{time} as last", "1L as clicks")
        return {"open": rows_of(joined(new.unionByName(sessions_in(open.rows(clicks)))))}

    return g


def main(spark: SparkSession, path: str) -> None:
    """Clicks of both inputs, out of order, of several sessions in one batch."""
    day = datetime(2026, 1, 1, tzinfo=UTC)
    clicks = {"web": {"ada": [0, 40, 20, 90, 200], "bob": [5]}, "app": {"ada": [60], "bob": [199]}}
    with graph(spark, path).start() as run, quire.open(path) as store:
        for queue, users in clicks.items():
            rows = [(user, minute) for user, minutes in users.items() for minute in minutes]
            times = [{"user": u, "at": day + timedelta(minutes=minute)} for u, minute in rows]
            store.put_many(queue, times)
        run.drain()
        print(sorted(message.payload.decode() for message in store.browse("sessions")))


if __name__ == "__main__":
    main(SparkSession.builder.getOrCreate(), sys.argv[1])

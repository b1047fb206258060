"""What Spark computes: one row per message to write, each naming the queue it goes to.

Every departure gives a row for `enriched`; a late one another for `delays`; a very late or
cancelled one another for `alerts` (see `demo.flights` for the words). All rows of a departure come
from one pass over it, in the order of the input: no shuffle, no second reading.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from demo import flights

__all__ = ["Reference", "load_reference", "route"]

AIRLINES = "carrier string, name string"
AIRPORTS = (
    "faa string, name string, lat double, lon double, alt int, tz int, dst string, tzone string"
)
WEATHER = (
    "origin string, year int, month int, day int, hour int, temp double, dewp double, "
    "humid double, wind_dir int, wind_speed double, wind_gust double, precip double, "
    "pressure double, visib double, time_hour string"
)

Reference = dict[str, DataFrame]


def load_reference(spark: SparkSession) -> Reference:
    """The tables that departures are joined with, small enough to be sent to every task."""

    def read(name: str, schema: str) -> DataFrame:
        path = str(flights.reference(name))
        return spark.read.csv(path, schema=schema, header=True, nullValue="NA")

    airports = read("airports", AIRPORTS).select("faa", "name")
    weather = read("weather", WEATHER).select(
        "origin",
        "time_hour",
        F.col("temp").alias("temperature_f"),
        F.col("wind_speed").alias("wind_mph"),
        F.col("precip").alias("rain_in"),
        F.col("visib").alias("visibility_mi"),
        F.lit(True).alias("observed"),
    )
    tables = {"airlines": read("airlines", AIRLINES), "airports": airports, "weather": weather}
    return {name: F.broadcast(frame.cache()) for name, frame in tables.items()}


def route(departures: DataFrame, reference: Reference) -> DataFrame:
    """Rows (queue string, payload binary) for the messages of `departures` (payload binary)."""
    schema = ", ".join(f"{name} {kind}" for name, kind in flights.FIELDS.items())
    parsed = F.from_json(F.col("payload").cast("string"), schema)
    flight = departures.select(parsed.alias("flight")).select("flight.*")
    rows = _enrich(flight, reference).select(F.explode(_messages()).alias("row"))
    return rows.select(
        F.col("row.queue").alias("queue"), F.col("row.text").cast("binary").alias("payload")
    )


def _enrich(flight: DataFrame, reference: Reference) -> DataFrame:
    """`flight` with `delay` and what the tables say; as many rows as before (FL3)."""
    airlines = reference["airlines"].withColumnRenamed("name", "airline")
    airports = reference["airports"]
    start = airports.select(F.col("faa").alias("origin"), F.col("name").alias("from"))
    end = airports.select(F.col("faa").alias("dest"), F.col("name").alias("to"))
    return (
        flight.withColumn("delay", F.greatest("dep_delay", "arr_delay"))
        .join(airlines, "carrier", "left")
        .join(F.broadcast(start), "origin", "left")
        .join(F.broadcast(end), "dest", "left")
        .join(reference["weather"], ["origin", "time_hour"], "left")
    )


def _messages() -> Column:
    """The messages of one departure: an array of (queue, text), without those that do not apply."""
    who = ["flight_id", "scheduled", "carrier", "airline", "flight", "origin", "dest", "delay"]
    weather = F.struct("temperature_f", "wind_mph", "rain_in", "visibility_mi")
    observed = F.when(F.col("observed"), weather).alias("weather")
    late = F.col("delay") > flights.LATE_MINUTES
    very_late = F.col("delay") > flights.VERY_LATE_MINUTES
    reason = F.when(F.col("cancelled"), "cancelled").otherwise("very late").alias("reason")
    enriched = F.struct(*who, "from", "to", "tailnum", "air_time", "distance", observed)
    messages = [
        _message("enriched", enriched),
        F.when(late, _message("delays", F.struct(*who, observed))),
        F.when(F.col("cancelled") | very_late, _message("alerts", F.struct(*who, "to", reason))),
    ]
    return F.filter(F.array(*messages), lambda message: message.isNotNull())


def _message(queue: str, fields: Column) -> Column:
    return F.struct(F.lit(queue).alias("queue"), F.to_json(fields).alias("text"))

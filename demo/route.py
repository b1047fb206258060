"""What the three steps compute: the messages to write for those that were read.

Every departure gives one for `enriched`; of these a late one gives another for `delays`, and a very
late or cancelled one another for `alerts` (see `demo.flights` for the words). All keep the order of
what they read: there is no shuffle.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from demo import flights

__all__ = ["Reference", "alerts", "delays", "enriched", "load_reference"]

AIRLINES = "carrier string, name string"
AIRPORTS = (
    "faa string, name string, lat double, lon double, alt int, tz int, dst string, tzone string"
)
WEATHER = (
    "origin string, year int, month int, day int, hour int, temp double, dewp double, "
    "humid double, wind_dir int, wind_speed double, wind_gust double, precip double, "
    "pressure double, visib double, time_hour string"
)

# What a message of `enriched` holds, and its type for Spark's JSON parser.
ENRICHED = {
    "flight_id": "int",
    "scheduled": "string",
    "carrier": "string",
    "airline": "string",
    "flight": "int",
    "origin": "string",
    "dest": "string",
    "delay": "int",
    "from": "string",
    "to": "string",
    "tailnum": "string",
    "air_time": "int",
    "distance": "int",
    "cancelled": "boolean",
    "weather": (
        "struct<temperature_f: double, wind_mph: double, rain_in: double, visibility_mi: double>"
    ),
}
WHO = ("flight_id", "scheduled", "carrier", "airline", "flight", "origin", "dest", "delay")
_ENRICHED_SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in ENRICHED.items())

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


def enriched(departures: DataFrame, reference: Reference) -> DataFrame:
    """Departures with what the tables say of them, as many as before and in their order (FL3)."""
    schema = ", ".join(f"{name} {kind}" for name, kind in flights.FIELDS.items())
    airlines = reference["airlines"].withColumnRenamed("name", "airline")
    airports = reference["airports"]
    start = airports.select(F.col("faa").alias("origin"), F.col("name").alias("from"))
    end = airports.select(F.col("faa").alias("dest"), F.col("name").alias("to"))
    weather = F.struct("temperature_f", "wind_mph", "rain_in", "visibility_mi")
    rows = (
        _read(departures, schema)
        .withColumn("delay", F.greatest("dep_delay", "arr_delay"))
        .join(airlines, "carrier", "left")
        .join(F.broadcast(start), "origin", "left")
        .join(F.broadcast(end), "dest", "left")
        .join(reference["weather"], ["origin", "time_hour"], "left")
        .withColumn("weather", F.when(F.col("observed"), weather))
    )
    return _written(rows.select(*ENRICHED))


def delays(rows: DataFrame) -> DataFrame:
    """The late ones of what `enriched` gives."""
    found = _read(rows, _ENRICHED_SCHEMA)
    return _written(found.where(F.col("delay") > flights.LATE_MINUTES).select(*WHO, "weather"))


def alerts(rows: DataFrame) -> DataFrame:
    """Those that are very late or cancelled, with the reason why somebody is to be told."""
    found = _read(rows, _ENRICHED_SCHEMA)
    very_late = F.col("delay") > flights.VERY_LATE_MINUTES
    reason = F.when(F.col("cancelled"), "cancelled").otherwise("very late").alias("reason")
    return _written(found.where(F.col("cancelled") | very_late).select(*WHO, "to", reason))


def _read(rows: DataFrame, schema: str) -> DataFrame:
    """The fields of messages (payload binary, a JSON object each) as columns."""
    parsed = F.from_json(F.col("payload").cast("string"), schema)
    return rows.select(parsed.alias("message")).select("message.*")


def _written(rows: DataFrame) -> DataFrame:
    """Columns as messages again."""
    return rows.select(F.to_json(F.struct("*")).cast("binary").alias("payload"))

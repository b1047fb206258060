"""The facts that airlines, airports and weather stations know of a departure."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from demo import flights

__all__ = ["Reference", "enriched", "load_reference"]

WEATHER = {
    "temp": "temperature_f",
    "wind_speed": "wind_mph",
    "precip": "rain_in",
    "visib": "visibility_mi",
}

Reference = dict[str, DataFrame]


def load_reference(spark: SparkSession) -> Reference:
    """The tables that departures are joined with, small enough to be sent to every task."""

    def read(name: str, *columns: str) -> DataFrame:
        return spark.createDataFrame(flights.reference(name).select(columns))

    weather = F.struct(*(F.col(name).alias(title) for name, title in WEATHER.items()))
    tables = {
        "airlines": read("airlines", "carrier", "name"),
        "airports": read("airports", "faa", "name"),
        "weather": read("weather", "origin", "time_hour", *WEATHER).select(
            "origin", "time_hour", weather.alias("weather")
        ),
    }
    return {name: F.broadcast(frame.cache()) for name, frame in tables.items()}


def enriched(departures: DataFrame, reference: Reference) -> DataFrame:
    """Departures with what the tables say of them, as many as before and in their order (FL3)."""
    airlines, airports = reference["airlines"], reference["airports"]
    return (
        departures.withColumn("delay", F.greatest("dep_delay", "arr_delay"))
        .join(airlines.withColumnRenamed("name", "airline"), "carrier", "left")
        .join(airports.toDF("origin", "from"), "origin", "left")
        .join(airports.toDF("dest", "to"), "dest", "left")
        .join(reference["weather"], ["origin", "time_hour"], "left")
        .drop("time_hour", "dep_delay", "arr_delay")
    )

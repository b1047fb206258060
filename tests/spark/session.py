"""A small Spark: two cores, three attempts for a task, no user interface."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
# For a JVM that lives minutes at most: the first compiler alone, and a collector without threads.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
}


LOCAL = "local[2,3]"
ARCHIVE = "pyspark.zip"


def spark_home(directory: Path) -> Path:
    """PySpark's directory by links, without the archive of its Python modules.

    Each of a query's dozen processes would compile the archive's modules anew, for a second and
    more; without it they import those that are installed, and compiled.
    """
    installed, home = Path(pyspark.__file__).parent, directory / "spark-home"
    libraries = home / "python" / "lib"
    if not home.exists():
        libraries.mkdir(parents=True)
        for entry in installed.iterdir():
            if entry.name != "python":
                (home / entry.name).symlink_to(entry)
        for entry in (installed / "python" / "lib").iterdir():
            if entry.name != ARCHIVE:
                (libraries / entry.name).symlink_to(entry)
    return home


def start_session(
    directory: Path, master: str = LOCAL, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session whose workers find the tests' modules and whose files are in the directory."""
    # Workers inherit the environment of the JVM, which is started here. A query has a dozen of
    # them: each would compile all that it imports anew, for a second and more.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    os.environ["SPARK_HOME"] = str(spark_home(directory))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master(master)
        .appName("quire-tests")
        .config(map={**SETTINGS, **(settings or {})})
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    from tests.spark import doubles  # what not every release of PySpark could import

    for source in doubles.ALL:
        session.dataSource.register(source)
    return session

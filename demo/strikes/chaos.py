"""The course of the demo: from an empty store to the end of the flow, with three strikes between.

1. Half way through the large transaction all processes die at once: the owner of the store, the
   publisher, the Spark driver with its JVM and Python workers, and the worker. The last three are
   started again; the first that misses the owner starts another one.
2. While Spark catches up, its driver and all that belongs to it die in a batch, which is planned
   and not committed. It is started again and goes on behind its last commit.
3. Later the owner dies alone. The others lose their connection, perhaps in a commit whose outcome
   they cannot know; they start another owner, look what it recovered, and go on.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from demo import store
from demo.strikes.crew import Member, kill
from demo.strikes.watch import Counts, Watch
from demo.timeline import Timeline, happened

__all__ = ["crew", "end_owner", "run"]

SECOND_STRIKE, THIRD_STRIKE = 0.55, 0.8  # of all flights
OWNER_SECONDS = 20.0  # for the owner to close the store at the end
MOST_PER_BATCH, LEAST_BATCHES = 20_000, 8


def crew(folder: Path, rows: int, seconds: float, seed: int) -> list[Member]:
    """The publisher, the pipeline and the worker, not started yet."""
    pace = ["--rows", str(rows), "--seconds", str(seconds), "--seed", str(seed)]
    most = min(MOST_PER_BATCH, max(1, rows // LEAST_BATCHES))
    arguments = {"publisher": pace, "pipeline": ["--most", str(most)], "worker": []}
    return [
        Member(name, [sys.executable, "-m", f"demo.processes.{name}", str(folder), *more], folder)
        for name, more in arguments.items()
    ]


def run(folder: Path, members: list[Member], totals: Counts, timeline: Timeline) -> None:
    """Let the flow run to its end. Raises DemoFailed if it does not get there."""
    publisher, pipeline, worker = members
    with store.join(folder / "store") as joined:
        store.create_queues(joined)
    with Watch(folder / "store", members, totals, timeline) as watch:
        watch.say("Starting a Spark driver and a worker ...")
        _start(pipeline, timeline)
        _start(worker, timeline)
        watch.until(lambda _: happened(folder, "ready"))
        _start(publisher, timeline)
        _strike_all(folder, watch, members, timeline)
        _strike_pipeline(watch, pipeline, timeline)
        _strike_owner(watch, timeline)
        watch.until(lambda _: publisher.status == 0)
        pipeline.ask_to_finish()
        watch.until(lambda _: pipeline.status == 0)
        worker.ask_to_finish()
        watch.until(lambda _: worker.status == 0)


def _strike_all(folder: Path, watch: Watch, members: list[Member], timeline: Timeline) -> None:
    watch.until(lambda _: happened(folder, "half of large"))
    count = kill(members, watch.owner())
    timeline.add("kill", processes=count, who="everything")
    watch.say(f"SIGKILL: all {count} processes, half way through the large transaction.")
    for member in members:
        _start(member, timeline)


def _strike_pipeline(watch: Watch, pipeline: Member, timeline: Timeline) -> None:
    watch.until(
        lambda _: (
            watch.share("enriched") == 1.0
            or (watch.share("enriched") >= SECOND_STRIKE and watch.in_batch())
        )
    )
    count = kill([pipeline])
    timeline.add("kill", processes=count, who="Spark")
    watch.say(f"SIGKILL: Spark's {count} processes, in a batch.")
    _start(pipeline, timeline)


def _strike_owner(watch: Watch, timeline: Timeline) -> None:
    watch.until(lambda _: watch.share("enriched") >= THIRD_STRIKE)
    kill([], watch.owner())
    timeline.add("kill", processes=1, who="the owner")
    watch.say("SIGKILL: the owner of the store alone.")


def _start(member: Member, timeline: Timeline) -> None:
    member.start()
    timeline.add("start", process=member.name)


def end_owner(path: Path) -> None:
    """Ask the owner to close the store now, which it would do by itself after a while."""
    with store.join(path) as joined:
        owner = joined.owner_process_id
    os.kill(owner, signal.SIGTERM)
    deadline = time.monotonic() + OWNER_SECONDS
    while Path(f"/proc/{owner}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)

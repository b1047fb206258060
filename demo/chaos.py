"""The course of the demo: from an empty store to the end of the flow, with two strikes between.

1. While the large transaction is open, all four processes die at once: the owner of the store, the
   publisher, the Spark driver with its JVM and Python workers, and the worker.
2. Later the owner dies alone. The others lose their connection, perhaps in a commit whose outcome
   they cannot know, and go on by themselves when the owner is back.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from demo import store
from demo.crew import Member, kill
from demo.timeline import Timeline, happened
from demo.watch import Counts, Watch

__all__ = ["crew", "run"]

SECOND_STRIKE = 0.75  # of all flights
OWNER_SECONDS = 1.0  # for which the store is without an owner at the second strike


def crew(folder: Path, rows: int, seconds: float, seed: int) -> list[Member]:
    """The owner, the publisher, the pipeline and the worker, not started yet."""
    part = [str(folder)]
    pace = ["--rows", str(rows), "--seconds", str(seconds), "--seed", str(seed)]
    commands = {
        "owner": ["quire", "serve", str(folder / "store")],
        "publisher": ["demo.publisher", *part, *pace],
        "pipeline": ["demo.pipeline", *part],
        "worker": ["demo.worker", *part],
    }
    return [
        Member(name, [sys.executable, "-m", *command], folder) for name, command in commands.items()
    ]


def run(folder: Path, members: list[Member], totals: Counts, timeline: Timeline) -> None:
    """Let the flow run to its end. Raises DemoFailed if it does not get there."""
    owner, publisher, pipeline, worker = members
    store.create(folder / "store")
    with Watch(folder / "store", members, totals, timeline) as watch:
        watch.say("Starting the owner of the store, a Spark driver and a worker ...")
        for member in (owner, pipeline, worker):
            _start(member, timeline)
        watch.until(lambda _: happened(folder, "query"))
        _start(publisher, timeline)
        _strike_all(folder, watch, members, timeline)
        watch.until(lambda counts: counts["enriched"] >= SECOND_STRIKE * totals["enriched"])
        _strike_owner(watch, owner, timeline)
        watch.until(lambda _: publisher.status == 0)
        pipeline.ask_to_finish()
        watch.until(lambda _: pipeline.status == 0)
        worker.ask_to_finish()
        watch.until(lambda _: worker.status == 0)


def _strike_all(folder: Path, watch: Watch, members: list[Member], timeline: Timeline) -> None:
    """Kill everything half way through the large transaction, and start it again."""
    watch.until(lambda _: happened(folder, "half of large"))
    watch.leave()
    count = kill(members)
    timeline.add("kill", processes=count, who="everything")
    watch.say(f"SIGKILL: all {count} processes, half way through the large transaction.")
    for member in members:
        _start(member, timeline)


def _strike_owner(watch: Watch, owner: Member, timeline: Timeline) -> None:
    watch.leave()
    count = kill([owner])
    timeline.add("kill", processes=count, who="the owner")
    watch.say("SIGKILL: the owner of the store alone.")
    time.sleep(OWNER_SECONDS)
    _start(owner, timeline)


def _start(member: Member, timeline: Timeline) -> None:
    member.start()
    timeline.add("start", process=member.name)

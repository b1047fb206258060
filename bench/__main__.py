"""Run benchmarks: all of them, or those that are named; figures also go to bench/results/.

Rivals run interleaved with Quire, on the same file system, with the same durability.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

from bench import machine, results
from bench.figure import BenchmarkSetting

# Each names a module that has `run(setting) -> figures`: with its room in this package, and what it
# measures.
BENCHMARKS = {
    "small": ("small", "the smallest transactions beside SQLite, and beside another checkout"),
    "commit": ("embedded", "one small durable commit against a bare write and sync"),
    "batch": ("embedded", "batches put and got back, against SQLite, LMDB and RocksDB"),
    "large_transaction": (
        "embedded",
        "a transaction of 50 million messages: memory, commit, rollback, read",
    ),
    "compression": ("embedded", "compressed files of large transactions: size, put, read"),
    "spark": ("spark", "Spark reads and writes, against sources and sinks that do nothing"),
    "typed": ("spark", "typed queues in Spark, beside Parquet, messages of bytes and Kafka"),
    "spark_small": (
        "spark",
        "small micro-batches of Spark beside a sink that does nothing, and a start",
    ),
    "spark_queues": (
        "spark",
        "many queues as output and as input of Spark, and an idle query over them",
    ),
    "graph": ("graphs", "from queue to queue by Spark, beside Spark's Kafka connector"),
    "state": (
        "graphs",
        "a step that remembers three million keys, beside transformWithState on RocksDB",
    ),
    "poison": ("graphs", "messages that a step of a graph fails with, beside empty Spark jobs"),
    "served": ("served", "transactions through a server: Redis, PostgreSQL and a floor beside it"),
    "network": (
        "served",
        "a store at a port, with TLS and without, up to 64 clients, beside Redis and JetStream",
    ),
    "network_load": (
        "served",
        "consumers that wait at a port, and hostile clients: the server's memory and time",
    ),
    "finding": (
        "embedded",
        "messages found by id, template and selector among a million, beside SQLite",
    ),
    "hearing": ("served", "from a commit to who listens, beside Redis's pub/sub"),
    "request": (
        "served",
        "a request and its reply, beside NATS, Redis lists and RabbitMQ's direct reply-to",
    ),
    "pool": ("served", "worker processes, beside RQ and a hand-written queue in SQLite"),
    "databases": (
        "embedded",
        "an outbox, a relay and an inbox, beside a plain put and a hand-written queue in SQLite",
    ),
    "keyed": (
        "embedded",
        "a keyed state of three million rows: looks, changes and merges in random batches",
    ),
    "archive": (
        "embedded",
        "a store with an archive beside one without; a backup and a restore beside a copy",
    ),
    "waiting": ("embedded", "gets in each order of a queue where up to a million messages wait"),
    "base": ("served", "put and get in memory and durably, sizes and memory, beside a thesis"),
    "watched": (
        "embedded",
        "a store with metrics that are scraped each second, beside one without",
    ),
    "concurrency": ("embedded", "commits of 1 to 32 threads, and how many share a write"),
    "strategies": ("embedded", "the four commit strategies under contention"),
    "messner": (
        "embedded",
        "messages of 100 bytes to 1 MB, against SQLite, PostgreSQL and a thesis of 1999",
    ),
    "io_managers": ("embedded", "transactions over one, two and four data files, and checkpoints"),
    "un_interleaving": (
        "embedded",
        "pages and records for each message, by the size of the write buffer",
    ),
}
# Names for several of them.
GROUPS = {
    "commit-engine": (
        "concurrency", "strategies", "messner", "large_transaction", "io_managers",
        "un_interleaving",
    ),
}  # fmt: skip


def module_of(name: str) -> ModuleType:
    """The module of a benchmark."""
    room, _ = BENCHMARKS[name]
    return importlib.import_module(f"bench.{room}.{name}")


def parse() -> argparse.Namespace:
    rows = {name: words for name, (_, words) in BENCHMARKS.items()}
    rows |= {name: ", ".join(members) for name, members in GROUPS.items()}
    names = "\n".join(f"  {name:<19}{words}" for name, words in rows.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"{__doc__}\nBenchmarks:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", help="which (default: all)")
    parser.add_argument("--quick", action="store_true", help="less of everything; saves nothing")
    parser.add_argument("--seed", type=int, default=1, help="of the payloads (default 1)")
    parser.add_argument("--folder", type=Path, help="where the stores go (default: temporary)")
    parser.add_argument(
        "--before",
        type=Path,
        metavar="CHECKOUT",
        help="small, spark, graph: measure this one beside the present",
    )
    parser.add_argument(
        "--no-sync", action="store_true", help="small: the interpreter's part alone"
    )
    arguments = parser.parse_args()
    arguments.name = [one for name in arguments.name for one in GROUPS.get(name, (name,))]
    for name in arguments.name:
        if name not in BENCHMARKS:
            parser.error(f"no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}")
    if arguments.before and arguments.name not in (["small"], ["spark"], ["graph"]):
        parser.error("--before is for the benchmarks small, spark and graph, one at a time")
    if arguments.no_sync and arguments.name != ["small"]:
        parser.error("--no-sync is for the benchmark small alone")
    if arguments.before and not (arguments.before / "quire").is_dir():
        parser.error(f"{arguments.before} is no checkout of Quire")
    return arguments


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="quire-bench-", dir=arguments.folder) as scratch:
        facts = machine.describe(Path(scratch))
        facts["seed"] = str(arguments.seed)
        for key, value in facts.items():
            print(f"{key:<12} {value}")
        if facts["file system"] in ("tmpfs", "ramfs"):
            print("This file system is memory, where a sync costs nothing: use --folder.")
        for name in arguments.name or BENCHMARKS:
            folder = Path(scratch) / name
            folder.mkdir()
            setting = BenchmarkSetting(
                folder,
                arguments.quick,
                arguments.seed,
                before=arguments.before,
                sync=not arguments.no_sync,
            )
            measure(name, setting, facts)
    return 0


def measure(name: str, setting: BenchmarkSetting, facts: dict[str, str]) -> None:
    """Run one benchmark, print what it found and save it."""
    print(f"\n{name}: {BENCHMARKS[name][1]}", flush=True)
    began = time.monotonic()
    found = module_of(name).run(setting)
    for item in found:
        print(results.line(item))
    print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
    if not setting.quick:
        command = f"python -m bench {name} --seed {setting.seed}"
        if setting.before is not None:
            name = name if name == "small" else f"{name}_before"
            facts = facts | {"before": machine.commit(setting.before)}
            command += f" --before {facts['before']}"
        if not setting.sync:
            name, command = f"{name}_no_sync", f"{command} --no-sync"
        results.save(name, facts, command, found)
        results.write_table()
        from bench import front_page  # which loads what draws: not before a measurement

        front_page.write()


if __name__ == "__main__":
    sys.exit(main())

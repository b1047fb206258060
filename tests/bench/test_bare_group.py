"""The bare group commit that the benchmark compares with: every thread comes back."""

from __future__ import annotations

import random
import sys
import threading
from pathlib import Path

from bench.rivals.bare_group import BareGroup
from bench.rivals.bare_loop import BareLoop
from tests.kit.waiting import SECONDS


def test_every_commit_returns_and_is_counted(tmp_path: Path, rng: random.Random) -> None:
    """The interpreter switches between any two steps; rounds end with nobody coming along."""
    interval = sys.getswitchinterval()
    loop = BareLoop(tmp_path / "bare", 64)
    try:
        for _ in range(100):
            sys.setswitchinterval(rng.choice([1e-6, 5e-6, 5e-5]))
            group, commits = BareGroup(loop), rng.choice([1, 3, 20])

            def work(group: BareGroup = group, commits: int = commits) -> None:
                for _ in range(commits):
                    group.commit()

            threads = [
                threading.Thread(target=work, daemon=True)
                for _ in range(rng.choice([2, 5, 12, 32]))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(SECONDS)
                assert not thread.is_alive(), "a thread hangs"
            status = group.status()
            assert status["commits"] == len(threads) * commits
            assert 1 <= status["groups"] <= status["commits"]
    finally:
        sys.setswitchinterval(interval)
        loop.close()

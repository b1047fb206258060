"""Print the seed of a commit, which `make test` runs with: the same for the same commit.

A seed is `turn * 100_000 + rest`. The turn is the number of commits on the branch's first-parent
line, so that from commit to commit it goes up by one, and what takes turns (`tests/kit/draws.py`)
gets each of them within as many commits. The rest is of the commit's hash. A clone that holds only
part of the history (`git clone --depth`) cannot count; there the turn is of the hash, too. Outside
of a clone the seed is 1.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PER_TURN = 100_000
TURNS = 40_000  # so a seed has 32 bits, as a drawn one has
OUTSIDE = 1


def git(*arguments: str, root: Path) -> str:
    """Return what git prints."""
    return subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


def seed_of(number: int, commit_hash: str) -> int:
    """Return the seed of the commit of this number and hash."""
    return number % TURNS * PER_TURN + int(commit_hash[:8], 16) % PER_TURN


def commit_seed(root: Path = ROOT, commit: str = "HEAD") -> int:
    """Return the seed of a commit of the clone at `root`."""
    try:
        commit_hash = git("rev-parse", "--verify", f"{commit}^{{commit}}", root=root)
        if git("rev-parse", "--is-shallow-repository", root=root) == "true":
            number = int(commit_hash[8:16], 16)
        else:
            number = int(git("rev-list", "--first-parent", "--count", commit_hash, root=root))
    except (OSError, subprocess.CalledProcessError):
        return OUTSIDE
    return seed_of(number, commit_hash)


if __name__ == "__main__":
    print(commit_seed())

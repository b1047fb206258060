"""Writes the expected lines of `test_dump` anew, after a change of words that was meant.

python -m tests.engine.golden.write
"""

from __future__ import annotations

from typing import Any

from tests.engine.test_dump import GOLDEN, GOLDEN_FILES, lines, story
from tests.engine.workload import new_machine


def main() -> None:
    """All of them; `git diff` shows what is different."""
    env = new_machine(0)
    story(env).close()
    for name, choices in GOLDEN.items():
        given: dict[str, Any] = choices
        text = "\n".join(lines(env, **given))
        (GOLDEN_FILES / f"dump_{name}.txt").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

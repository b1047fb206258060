"""Each command loads what `tests/command_modules.tsv` lists, and nothing that costs more."""

from __future__ import annotations

import random

from scripts.command_starts import COMMANDS, starts, table

MORE = 8  # modules that a command may have more, as it grows, before the list is written anew


def test_commands_load_what_is_listed(rng: random.Random) -> None:
    """A feature that a command does not use costs its start nothing: `--metrics` alone has metrics.

    Of the others some are drawn. Where one needs more for good, `python -m scripts.command_starts
    --write` writes the list anew, and prints the processor time of each start.
    """
    listed = table()
    assert list(listed) == [" ".join(words) for words in COMMANDS]
    *others, plain, watched = COMMANDS
    for start in starts([*rng.sample(others, 2), plain, watched]):
        modules, libraries = listed[start.name]
        assert set(start.libraries) <= set(libraries), start.name
        assert start.modules <= modules + MORE, start.name
        assert ("prometheus_client" in start.libraries) == (start.words == watched)
    assert [name for name, row in listed.items() if "prometheus_client" in row[1]] == [
        " ".join(watched)
    ]

"""Bounds of what is loaded late, with their reasons."""

from __future__ import annotations

from typing import Final

# How long a fork waits for what other threads import, in seconds. Longer than any import takes,
# also on a busy machine; one that waits for the very thread that forks never ends.
IMPORT_WAIT_SECONDS: Final = 20.0

# How often it looks whether they have ended, and an import whether a fork has: both are rare.
IMPORT_POLL_SECONDS: Final = 0.001

"""Bounds of what is the same for every kind of store, with their reasons."""

from __future__ import annotations

from typing import Final

# Messages that a loop which found nothing waits for before it looks, at most (LM7): so many looks
# in vain are spared, and a backlog that comes then is taken at once after so many.
WAITED_FIRST: Final = 64

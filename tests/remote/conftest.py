"""Stores for the tests of sharing: those of `tests/behaviour`."""

from tests.behaviour.forms import clock, elected, joined, owner, store

__all__ = ["clock", "elected", "joined", "owner", "store"]

"""Stores whose metrics are read."""

from tests.behaviour.forms import clock, elected, joined, owner, store

__all__ = ["clock", "elected", "joined", "owner", "store"]

"""Quire in Spark: `format("quire")`, batch and streaming, both ways, and graphs of queries."""

from .graphs import Graph, Run, StateRows, keyed
from .register import register

__all__ = ["Graph", "Run", "StateRows", "keyed", "register"]

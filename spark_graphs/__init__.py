"""Quire in Spark: `format("quire")`, batch and streaming, both ways, and graphs of queries."""

from .graph import Graph
from .register import register

__all__ = ["Graph", "register"]

"""NumPy, PyArrow and what few need of the standard library, each loaded when first asked for.

    from quire.libraries import np, pa

The first two are most of the time and memory of an import, and a store of small messages never
comes to PyArrow. So whatever part of Quire uses one takes it from here, at its top like any import;
a linter refuses other imports of them there. What is made of them at the top of a module (a type, a
schema) would load them together with it: such a thing is made by a function that keeps what it has
made, or stands in a module that only its users import.

The others take some milliseconds each, which a command has no time for.
"""

from .lazily_loaded import ctypes, difflib, hashlib, inspect, is_arrow, np, pa, pc, pickle

__all__ = ["ctypes", "difflib", "hashlib", "inspect", "is_arrow", "np", "pa", "pc", "pickle"]

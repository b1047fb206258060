"""NumPy and PyArrow, each loaded when something of it is first asked for.

    from quire.libraries import np, pa

They are most of the time and memory of an import, and a store of small messages never comes to
PyArrow. So whatever part of Quire uses one takes it from here, at its top like any import; a linter
refuses other imports of them there. What is made of them at the top of a module (a type, a schema)
would load them together with it: such a thing is made by a function that keeps what it has made,
or stands in a module that only its users import.
"""

from .lazily_loaded import is_arrow, np, pa, pc

__all__ = ["is_arrow", "np", "pa", "pc"]

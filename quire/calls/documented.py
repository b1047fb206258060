"""Methods that say what their interface says of them, and are called there as its methods."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)


def documented_by(interface: type) -> Callable[[Class], Class]:
    """A decorator of a class: its methods without a text of their own take the interface's.

    And its name, by which Python speaks of them where arguments are missing.
    """

    def take_texts(made: Class) -> Class:
        for name, method in list(vars(made).items()):
            described = getattr(interface, name, None)
            if described is None:
                continue
            if isinstance(method, FunctionType):
                known: Any = method
                while known is not None:  # what it wraps, too
                    known.__qualname__ = f"{interface.__name__}.{name}"
                    known = getattr(known, "__wrapped__", None)
            if method.__doc__:
                continue
            if callable(method):
                method.__doc__ = described.__doc__
            elif isinstance(method, property):
                setattr(made, name, property(method.fget, doc=described.__doc__))
        return made

    return take_texts

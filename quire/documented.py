"""Methods that say what their interface says of them, and are called there as its methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Class = TypeVar("Class", bound=type)


def documented_by(interface: type) -> Callable[[Class], Class]:
    """A decorator of a class: its methods without a text of their own take the interface's."""

    def take_texts(made: Class) -> Class:
        for name, method in list(vars(made).items()):
            described = getattr(interface, name, None)
            if described is None or method.__doc__:
                continue
            if callable(method):
                method.__doc__ = described.__doc__
                while method is not None:  # what Python's own errors show is the innermost's
                    method.__qualname__ = described.__qualname__
                    method = getattr(method, "__wrapped__", None)
            elif isinstance(method, property):
                setattr(made, name, property(method.fget, doc=described.__doc__))
        return made

    return take_texts

"""Selectors and templates: which messages somebody asks for, seen in blocks of columns."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "template")

__all__: list[str] = []

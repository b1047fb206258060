"""The client's side: a store and a transaction that another process owns."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "joining")

__all__: list[str] = []

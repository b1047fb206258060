"""The work of a store besides its callers' calls, and its figures."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "disk_watch", "purging", "redriving")

__all__: list[str] = []

"""The store of this process by subject: `store.admin`, `store.cron`, ..."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "admin", "cron", "integration", "listeners", "values")

__all__: list[str] = []

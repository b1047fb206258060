"""Changes on their way into the journal: one order, one write, one sync, then applied."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "call_times")

__all__: list[str] = []

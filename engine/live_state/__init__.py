"""The state of an open store: queues, values and prepared transactions beside the fold."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "followed_source")

__all__: list[str] = []

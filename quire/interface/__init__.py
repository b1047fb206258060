"""The interface for users: the store, the transaction, and their calls by subject."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(
    globals(), "awaited", "consumer", "listening", "lookup", "redriving", "schedules", "starts"
)

__all__: list[str] = []

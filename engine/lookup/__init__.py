"""Messages by what they are: their id, or a condition; waiting for one that others have."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "choice", "latest_of_keys", "moved_marks")

__all__: list[str] = []

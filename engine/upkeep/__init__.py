"""What a store does besides its callers, and what it tells of itself."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "purging", "redriving")

__all__: list[str] = []

"""The inspection of an open store: its numbers, its check, a digest of its messages."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "contents_digest", "status", "verify")

__all__: list[str] = []

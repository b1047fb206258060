"""Runs of messages out of many blocks: delivered, packed anew, moved, or as one Arrow batch."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "delivered_messages")

__all__: list[str] = []

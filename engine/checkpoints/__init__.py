"""The state at one LSN: taken, written, kept small, and opened again."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "block_mover")

__all__: list[str] = []

"""From positions to messages: taking, looking, leasing, and the blocks that are read for it."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "position_search")

__all__: list[str] = []

"""Open transactions: what they have put and got, and who may end them."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "streaming")

__all__: list[str] = []

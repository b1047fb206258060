"""Reports of a store on itself: plain frozen values, and the words for them."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "explanation")

__all__: list[str] = []

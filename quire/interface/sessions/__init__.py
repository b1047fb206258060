"""Being answered, exactly once: sessions of clients, requests and their replies."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "requesting", "session")

__all__: list[str] = []

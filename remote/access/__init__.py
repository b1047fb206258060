"""Users of a served store: who they are, and what each of them may do."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "use_account", "use_limits")

__all__: list[str] = []

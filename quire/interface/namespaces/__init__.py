"""The calls of a store by subject, beside those of every day; `integration` is one more."""

from .admin import Admin
from .cron import Cron
from .delayed import Delayed
from .listeners import Listeners
from .prepared import Prepared
from .states import States

__all__ = ["Admin", "Cron", "Delayed", "Listeners", "Prepared", "States"]

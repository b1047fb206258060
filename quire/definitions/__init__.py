"""The values that queues and subscriptions are made with: properties, orders, types, retries,
schemas."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "cron", "existing_queue")

__all__: list[str] = []

"""The commands of the command line: a module for each subject."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(
    globals(),
    "aliases",
    "archives",
    "checking",
    "clients",
    "getting",
    "graphs",
    "moving",
    "putting",
    "queues",
    "schedules",
    "serving",
    "stopping",
    "subscriptions",
    "transactions",
    "users",
    "why",
)

__all__: list[str] = []

"""The owner's side: connections of clients, their sessions, what they have prepared."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(
    globals(),
    "awaited_sources",
    "network_entrance",
    "open_streams",
    "served_client",
    "served_connection",
    "stream_context",
    "undecided",
    "waiting_gets",
)

__all__: list[str] = []

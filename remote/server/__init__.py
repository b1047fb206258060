"""The owner's side: connections of clients, their sessions, what they have prepared."""

__all__: list[str] = []

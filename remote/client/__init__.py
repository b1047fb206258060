"""The client's side: a store and a transaction that another process owns."""

__all__: list[str] = []

"""A dump of a store: what its files hold, whatever their state, as values and in words."""

__all__: list[str] = []

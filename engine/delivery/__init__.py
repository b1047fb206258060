"""The next message of a subscription: the table of states, orders, groups, sequences."""

__all__: list[str] = []

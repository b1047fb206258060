"""Which message a subscription gets next: the table of states, orders, groups, sequences."""

__all__: list[str] = []

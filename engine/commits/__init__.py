"""Changes on their way into the journal: one order, one write, one sync, then applied."""

__all__: list[str] = []

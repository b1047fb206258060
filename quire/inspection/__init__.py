"""Looking at a store that another process owns, or that nobody can open."""

__all__: list[str] = []

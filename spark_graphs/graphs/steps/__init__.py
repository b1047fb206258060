"""Steps that run: their threads, their commits, their numbers."""

__all__: list[str] = []

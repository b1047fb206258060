"""What a store does besides its callers, and what it tells of itself."""

__all__: list[str] = []

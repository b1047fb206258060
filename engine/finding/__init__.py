"""Messages by what they are: their id, or a condition; waiting for one that others have."""

__all__: list[str] = []

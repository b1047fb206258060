"""The files that Spark keeps of a streaming query, and what the store remembers of them."""

__all__: list[str] = []

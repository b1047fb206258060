"""The ownership of a store: the election, and store objects that outlive an owner."""

__all__: list[str] = []

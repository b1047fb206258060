"""What users call: the store, the transaction, and what they have by subject."""

__all__: list[str] = []

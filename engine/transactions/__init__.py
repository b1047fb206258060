"""Open transactions: what they have put and got, and who may end them."""

__all__: list[str] = []

"""What a store tells of itself: plain frozen values, and the words for them."""

__all__: list[str] = []

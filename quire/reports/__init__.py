"""Reports of a store on itself: plain frozen values, and the words for them."""

__all__: list[str] = []

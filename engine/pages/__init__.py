"""The places of messages: data files and their free space, record pages, pins on them."""

__all__: list[str] = []

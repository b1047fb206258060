"""Where messages are kept: data files and their free space, record pages, who holds what."""

__all__: list[str] = []

"""From positions to messages: taking, looking, leasing, and the blocks that are read for it."""

__all__: list[str] = []

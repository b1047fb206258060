"""What the bytes of records and checkpoints say, and the durable state that records fold to."""

__all__: list[str] = []

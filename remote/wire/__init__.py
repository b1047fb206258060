"""What owner and clients send each other: frames, values, addresses, streams."""

__all__: list[str] = []

"""What owner and clients send each other: frames, values, addresses, streams."""

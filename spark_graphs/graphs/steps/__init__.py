"""Steps that run: their threads, their commits, their numbers."""

"""What the tasks of a sink write, and hand to its commit."""

"""Benchmarks of a store in its own process."""

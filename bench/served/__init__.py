"""Benchmarks of a store that other processes use, and of the servers beside it."""

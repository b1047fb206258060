"""Benchmarks of the Spark data source, and the sessions and rows that they need."""

"""Benchmarks: each figure beside its target, rivals in the same run."""

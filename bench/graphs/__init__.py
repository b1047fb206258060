"""Benchmarks of graphs: steps beside empty jobs, Kafka and an older Quire."""

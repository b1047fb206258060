"""What benchmarks measure with: latencies, payloads, threads, environments that count or wait."""

"""The tools of benchmarks: latencies, payloads, threads, environments that count or wait."""

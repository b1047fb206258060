"""Sinks: rows on their way into queues, and the one commit for them."""

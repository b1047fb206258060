"""An order service: workers, retries, dead letters, delays and priorities. See README.md."""

"""Metrics and health of a store, for Prometheus and for probes (`pip install 'quire-mq[metrics]'`).

A collector reads the store's status at each scrape, and nothing else: a store that nobody scrapes
pays nothing for it. docs/operations.md says what to watch.
"""

from quire.metrics.alert_rules import ALERT_RULES
from quire.metrics.collector import collector
from quire.metrics.metrics_server import MetricsServer

__all__ = ["ALERT_RULES", "MetricsServer", "collector"]

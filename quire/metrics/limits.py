"""Limits of metrics: labels, and what an HTTP server lets anybody have of it."""

from __future__ import annotations

from typing import Final

# Queues, subscriptions and users that have a label of their own; others share one. Each takes some
# ten series of Prometheus, and of each scrape some 1.5 KB and 30 us.
LABELED_QUEUES: Final = 500
LABELED_SUBSCRIPTIONS: Final = 500
LABELED_USERS: Final = 100

# Connections at once, each with a thread; with more the one that has sent least gives way.
CONNECTIONS: Final = 16
# Bytes of a request, its headers included, and seconds that it may take to come, and its answer to
# be taken.
REQUEST_BYTES: Final = 8192
REQUEST_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 10.0
# Seconds that a scrape waits for another one that is under way: then it is refused.
SCRAPE_SECONDS: Final = 10.0
# Seconds that the end waits for the threads.
END_SECONDS: Final = 5.0
# Seconds between two looks whether it is over, where the system does not tell by itself.
LOOK_SECONDS: Final = 1.0
# Seconds of a pause where no connection can be had, as there is no descriptor.
ACCEPT_PAUSE: Final = 0.1

"""The file of alert rules that comes with Quire, for the `rule_files` of Prometheus."""

from __future__ import annotations

import os
from typing import Final

ALERT_RULES: Final[str] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "alerts.yml")
"""The path of the rules."""

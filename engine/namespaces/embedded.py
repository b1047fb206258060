"""All of them, as an embedded store has them."""

from __future__ import annotations

from typing import Final

from quire.interface.single_calls import Namespaces

from .admin import EmbeddedAdmin
from .cron import EmbeddedCron
from .delayed import EmbeddedDelayed
from .integration import EmbeddedIntegration
from .listeners import EmbeddedListeners
from .prepared import EmbeddedPrepared
from .states import EmbeddedStates

EMBEDDED: Final = Namespaces(
    EmbeddedAdmin,
    EmbeddedCron,
    EmbeddedDelayed,
    EmbeddedStates,
    EmbeddedPrepared,
    EmbeddedListeners,
    EmbeddedIntegration,
)

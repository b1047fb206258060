"""What the store of this process has by subject: `store.admin`, `store.cron`, ..."""

from quire.single_calls import Namespaces

from .admin import EmbeddedAdmin
from .cron import EmbeddedCron
from .delayed import EmbeddedDelayed
from .integration import EmbeddedIntegration, subscribe
from .prepared import EmbeddedPrepared
from .states import EmbeddedStates

EMBEDDED = Namespaces(
    EmbeddedAdmin,
    EmbeddedCron,
    EmbeddedDelayed,
    EmbeddedStates,
    EmbeddedPrepared,
    EmbeddedIntegration,
)

__all__ = ["EMBEDDED", "subscribe"]

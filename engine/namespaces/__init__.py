"""What the store of this process has by subject: `store.admin`, `store.cron`, ..."""

from .admin import EmbeddedAdmin
from .embedded import EMBEDDED
from .integration import EmbeddedIntegration, asked_form
from .prepared import EmbeddedPrepared

__all__ = ["EMBEDDED", "EmbeddedAdmin", "EmbeddedIntegration", "EmbeddedPrepared", "asked_form"]

"""All of them, as an embedded store has them: each is loaded when it is first asked for."""

# ruff: noqa: PLW0108 - what a lambda names is looked up when it is called

from __future__ import annotations

from typing import Final

from quire.interface.single_calls import Namespaces

from . import admin, cron, delayed, integration, listeners, prepared, states

EMBEDDED: Final = Namespaces(
    lambda of: admin.EmbeddedAdmin(of),
    lambda of: cron.EmbeddedCron(of),
    lambda of: delayed.EmbeddedDelayed(of),
    lambda of: states.EmbeddedStates(of),
    lambda of: prepared.EmbeddedPrepared(of),
    lambda of: listeners.EmbeddedListeners(of),
    lambda of: integration.EmbeddedIntegration(of),
)

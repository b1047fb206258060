"""Stores that this process owns, and those that it has joined."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["owner", "joined"])
def role(request: pytest.FixtureRequest) -> str:
    """How a store is had."""
    value: str = request.param
    return value

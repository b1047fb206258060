"""Which catalog entries only a release may take that knows all of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .format import LATER_FIELDS


def says_more(name: str, body: Mapping[str, Any]) -> bool:
    """Whether an entry of this type has a field that must not be passed over."""
    return any(field in body for field in LATER_FIELDS.get(name, ()))

"""Bounds of an archive, with their reasons."""

from __future__ import annotations

from typing import Final

# An object that is made by one exclusive request; it and its answer are in memory as a whole.
MAX_CREATE_BYTES: Final = 16 << 20

# What one request carries of a larger object; at least 5 MiB, the least part of an upload to S3.
TRANSFER_BYTES: Final = 8 << 20

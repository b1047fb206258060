"""Bounds of an archive, with their reasons."""

from __future__ import annotations

from typing import Final

# An object that is made by one exclusive request; it and its answer are in memory as a whole.
MAX_CREATE_BYTES: Final = 16 << 20

# What one request carries of a larger object; at least 5 MiB, the least part of an upload to S3.
TRANSFER_BYTES: Final = 8 << 20

# The longest name of an object: a path in a directory, of at most 255 bytes a part, with room for
# what stands before it. S3 takes 1,024.
MAX_NAME_LENGTH: Final = 200

# When a temporary file in a directory is taken for what a process that was killed has left. Every
# write makes it younger, and an object is written in one go.
TEMPORARY_AGE_SECONDS: Final = 24 * 3600.0

"""What a store's files hold, whatever their state."""

from .dump import Choices, dump_files
from .records import Owner

__all__ = ["Choices", "Owner", "dump_files"]

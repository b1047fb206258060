"""The environment: what reaches files, locks, clocks and chance. All else calls nothing of `os`."""

from .file_systems import check_file_system
from .os_env import OsEnv, after_fork
from .seam import Env, File, FileLock

__all__ = ["Env", "File", "FileLock", "OsEnv", "after_fork", "check_file_system"]

"""The archive: what of a store is kept outside its directory, and how it is got back.

A room of its own above the engine; a store without an archive pays nothing for it. Its names are
imported when they are asked for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base_checking import verify
    from .base_keeping import keep
    from .base_making import backup
    from .base_restoring import restore
    from .choosing import backups
    from .manifest import BackupInfo, BackupReport, RestoreReport
else:
    from quire.libraries.late_modules import names_of

    __getattr__ = names_of(
        globals(),
        {
            "BackupInfo": "quire.archive.manifest",
            "BackupReport": "quire.archive.manifest",
            "RestoreReport": "quire.archive.manifest",
            "backup": "quire.archive.base_making",
            "backups": "quire.archive.choosing",
            "keep": "quire.archive.base_keeping",
            "restore": "quire.archive.base_restoring",
            "verify": "quire.archive.base_checking",
        },
    )

__all__ = [
    "BackupInfo",
    "BackupReport",
    "RestoreReport",
    "backup",
    "backups",
    "keep",
    "restore",
    "verify",
]

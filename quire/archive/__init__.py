"""The archive: what of a store is kept outside its directory, and how it is got back.

A room of its own above the engine; a store without an archive pays nothing for it.
"""

__all__: list[str] = []

"""Salvage: every undamaged message of a damaged store, in a new one."""

__all__: list[str] = []

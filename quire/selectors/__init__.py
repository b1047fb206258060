"""Selectors and templates: which messages somebody asks for, seen in blocks of columns."""

__all__: list[str] = []

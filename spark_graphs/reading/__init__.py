"""How the tasks of a read have their messages: as bytes with a header, or as rows."""

__all__: list[str] = []

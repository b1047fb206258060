"""How a call is made: its row in the table, its text, its protection from signals."""

__all__: list[str] = []

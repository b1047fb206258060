"""The state at one LSN: taken, written, kept small, and opened again."""

__all__: list[str] = []

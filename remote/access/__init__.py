"""Users of a served store: who they are, and what each of them may do."""

__all__: list[str] = []

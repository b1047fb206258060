"""The functions of steps: tried, run over batches, and the values that they keep."""

__all__: list[str] = []

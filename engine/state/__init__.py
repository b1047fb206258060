"""The durable state: what a store holds, and the fold by which records change it."""

__all__: list[str] = []

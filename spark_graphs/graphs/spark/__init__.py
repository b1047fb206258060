"""The use of Spark itself by graphs: its session, its jobs, its errors."""

__all__: list[str] = []

"""What graphs need of Spark itself: its session, its jobs, its errors."""

__all__: list[str] = []

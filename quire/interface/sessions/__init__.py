"""Being answered, exactly once: sessions of clients, requests and their replies."""

__all__: list[str] = []

"""Messages: what a put may set, what a get returns, payloads and ids."""

__all__: list[str] = []

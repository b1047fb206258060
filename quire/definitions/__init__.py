"""What queues and subscriptions may be made with: properties, orders, types, retries, schemas."""

__all__: list[str] = []

"""The orders that customers send, as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from quire import Message, codecs


@dataclass(frozen=True)
class CustomerOrder:
    """An order of a customer."""

    number: int
    item: str
    cents: int
    express: bool = False

    def encode(self) -> tuple[bytes, str]:
        """Payload and content type of a message."""
        return codecs.encode(asdict(self))


def read(message: Message) -> CustomerOrder:
    """The order in a message. Raises PayloadInvalid or TypeError for what is none."""
    value: Any = message.decode()
    if not isinstance(value, dict):
        raise TypeError(f"an order is a JSON object, not {value!r:.50}")
    return CustomerOrder(**value)

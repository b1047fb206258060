"""Messages: what a put may set, what a get returns, payloads and ids."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(
    globals(),
    "encoded_values",
    "message_types",
    "payload_writer",
    "put_options",
    "streamed_message",
)

__all__: list[str] = []

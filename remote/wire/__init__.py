"""The protocol of owner and clients: frames, values, addresses, streams."""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "protocol", "tls_session", "tls_socket")

__all__: list[str] = []

"""Errors on their way from the owner to a client: the class by its name, and the message."""

from __future__ import annotations

from typing import Any, Final

from quire import errors
from quire.errors import LimitReached, OutcomeUnknown, QuireError, RemoteError, StoreClosed

from .protocol import Header

ERROR_CLASSES: Final[dict[str, type[QuireError]]] = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, QuireError)
}

_OF_LIMITS: Final = ("limit", "value", "retry_after")


def describe_error(error: BaseException) -> dict[str, object]:
    """The header of an answer that reports `error`."""
    for kind in type(error).__mro__:
        if ERROR_CLASSES.get(kind.__name__) is kind:
            report: dict[str, object] = {"type": kind.__name__, "message": str(error)}
            if isinstance(error, LimitReached):
                report |= {name: getattr(error, name) for name in _OF_LIMITS}
            return {"error": report}
    return describe_error(error_from_elsewhere(error))


def error_from_elsewhere(error: BaseException, doing: str = "") -> QuireError:
    """Return the error that reports a failure inside the owner.

    `doing`: a change that may have taken effect. A store object that its owner has dropped is as
    one that it has closed."""
    if isinstance(error, ReferenceError) and not doing:
        return StoreClosed("the owner has closed the store: open it again")
    text = f"{type(error).__name__}: {error}"
    if doing:
        return OutcomeUnknown(
            f"the owner of the store failed during {doing} ({text}): look whether it took effect"
        )
    return RemoteError(f"the owner of the store failed: {text}; nothing of this took effect")


def raise_error(header: Header) -> None:
    """Raise what an answer reports, as the same class with the same message, and its limit."""
    report = header.get("error")
    if report is None:
        return
    if not isinstance(report, dict):
        raise RemoteError("the owner's answer reports an error that cannot be read")
    kind = ERROR_CLASSES.get(str(report.get("type")), RemoteError)
    error = kind(str(report.get("message")))
    if isinstance(error, LimitReached):
        error.limit = str(report.get("limit"))
        error.value, error.retry_after = map(
            _number, (report.get("value"), report.get("retry_after"))
        )
    raise error


def _number(value: object) -> Any:
    return value if type(value) in (int, float) else None

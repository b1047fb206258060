"""What an error says in one line, also where Spark hands on the traceback of a Python worker."""

from __future__ import annotations


def reason_of(error: BaseException) -> str:
    """The first line that says anything, or of what has a traceback in it the last."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    worker = [line for line in lines if not line.startswith((" ", "\t", "Traceback"))]
    found = (worker or lines or [""])[-1 if "Traceback" in str(error) else 0]
    return found.strip() or type(error).__name__


def told(error: BaseException, advice: str = "") -> str:
    """The error with its kind, what is to be done, and all that it says; the reason goes first."""
    kind, reason = type(error).__name__, reason_of(error)
    text = str(error)
    if "Traceback" not in text:
        return f"{kind}: {text}{advice}"
    return f"{kind}: {reason}{advice}\n{text}"

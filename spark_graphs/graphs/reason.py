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
    kind, text = type(error).__name__, str(error)
    notes = [note for note in getattr(error, "__notes__", ()) if "\n" not in note]
    if "Traceback" not in text and not notes:
        return f"{kind}: {text}{advice}"
    reason = reason_of(error)
    first = f"{kind}: {reason}{''.join(f' ({note})' for note in notes)}{advice}"
    return first if reason == text else f"{first}\n{text}"

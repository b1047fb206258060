"""The reason of an error in one line, also of one of Java's or of a Python worker's.

- The first line of what is told is the cause: neither who called whom, nor who handed it on.
"""

from __future__ import annotations

import re
from typing import Final

# What stands before the cause, in whatever order.
_BEFORE: Final = re.compile(
    r"""\s*(?:
      An\ error\ occurred\ while\ calling\ [^\s:]+\s*:
    | An\ exception\ was\ thrown\ from\ the\ Python\ worker[.:]?
      (?:\ Please\ see\ the\ stack\ trace\ below\.)?
    | \[PYTHON_EXCEPTION\]
    | \[PYTHON_\w+\]\ Failed\ when\ Python\ [^:\n]*:
    | \[STREAM_FAILED\]\ Query\ \[[^]]*\]\ terminated\ with\ exception:
    | Job\ aborted\ due\ to\ stage\ failure:
    | Task\ \S+\ in\ stage\ \S+\ failed\ \d+\ times,\ most\ recent\ failure:
    | Lost\ task\ \S+\ in\ stage\ \S+\ \(TID\ \d+\)\ \([^)\n]*\):
    | (?:[A-Za-z_$][\w$]*\.)+(?=[A-Z][\w$]*(?::|$))
    | (?:SparkException|PythonException|StreamingQueryException|ExecutionException|StoreTrouble):
    )\ ?""",
    re.VERBOSE,
)
# What only says that something else has failed, which stands further on.
_ELSEWHERE: Final = re.compile(
    r"$|Exception thrown in awaitResult|Job aborted|Writing job|"
    r"\[(?:TASK_WRITE_FAILED|WRITING_JOB_ABORTED|FAILED_EXECUTE_UDF)"
)
_TEXT: Final = "quire_text"
_CAUSED_BY: Final = "Caused by: "
_TRACEBACK: Final = "Traceback (most recent call last):"
_HANDED_ON: Final = frozenset(
    {"Py4JJavaError", "PythonException", "SparkException", "StreamingQueryException"}
    | {"UnknownException", "StoreTrouble"}
)


def text_of(error: BaseException) -> str:
    """Return the error's text, kept: an error of Spark asks the JVM for it, ten calls each time."""
    kept = vars(error)  # where it is kept
    if _TEXT not in kept:
        kept[_TEXT] = str(error)
    return str(kept[_TEXT])


def reason_of(error: BaseException) -> str:
    """The line that says what happened."""
    return _cause(text_of(error)) or type(error).__name__


def kind_of(error: BaseException) -> str:
    """Return the error's class, in Python or in Java."""
    return str(getattr(error, "kind", type(error).__name__))


def error_report(error: BaseException, advice: str = "") -> str:
    """The error with its kind, what is to be done, and all that it says; the reason goes first."""
    kind = kind_of(error)
    text, reason = text_of(error), reason_of(error)
    notes = [f" ({note})" for note in getattr(error, "__notes__", ()) if "\n" not in note]
    head = reason if kind in (*_HANDED_ON, reason) else f"{kind}: {reason}"
    first = f"{head}{''.join(notes)}{advice}"
    if text.partition("\n")[0] == reason:
        text = text.partition("\n")[2]
    return f"{first}\n{text}".rstrip()


def _cause(text: str) -> str:
    while found := _BEFORE.match(text):
        text = text[found.end() :]
    text = text.lstrip()
    if text.startswith(_TRACEBACK):
        return _cause(_raised(text))
    first = text.partition("\n")[0].strip()
    if _CAUSED_BY in text and _ELSEWHERE.match(first):
        return _cause(text.rpartition(_CAUSED_BY)[2])
    return first


def _raised(text: str) -> str:
    """Return what follows the frames of a traceback, of the last one where they are several."""
    lines = text.rpartition(_TRACEBACK)[2].lstrip("\n").splitlines()
    for index, line in enumerate(lines):
        if line.strip() and not line.startswith((" ", "\t")):
            return "\n".join(lines[index:])
    return ""

"""A dump's items in words: a line each, and below it one for each member of a list that it has.

- DW1: whatever names, keys and payloads hold, only printable characters come out.
- A line is made of the names and values of fields, whatever has them: a name says its unit
  (`..._us`, `..._bytes`, `..._lsn`, a plural that counts). What that does not say well is in the
  tables below; a new item, or a new record of the journal, needs no row there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from quire.limits import FIELD_START_CHARACTERS

from .items import Finding, Item, plain_value

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DETAIL: Final = "    "

# Items: those whose first words say what they are, and those of the queue in a line above.
_UNTITLED: Final = {"record", "queue", "subscription", "queue_record", "pages", "file"}
_INDENTED: Final = {"subscription", "message"}
_OF_A_QUEUE: Final = {"subscription", "queue_record", "message"}

# Fields, by name, or by item and name.
_FOR_PROGRAMS: Final = {
    "record.group_lsn", "record.generation", "record.kind", "record.file", "record.offset",
    "place.where", "checksum",
}  # fmt: skip
_VALUE_ALONE: Final = {
    "record.name", "queue_record.name", "file", "place", "fields", "body"
}  # fmt: skip
_UNQUOTED: Final = {
    "record.name", "queue_record.name", "file", "record_file", "use", "kind", "type",
    "store_id", "opened_as",
}  # fmt: skip
_IN_BYTES: Final = {"capacity", "charge"}
_NONE_AT_0: Final = {
    "queue_record.messages", "queue_record.released", "transaction", "first_id", "queue_id",
    "subscription_id", "payload_bytes", "held_number",
}  # fmt: skip
_USUAL: Final = {"certain": True, "released": False, "open": False, "is_volatile": False}
_MISSING: Final = {
    "change.body": "deleted",
    "set.value": "deleted",
    "queue.kind": "its definition is lost",
    "file.messages": "not finished, or damaged",
    "file.queue": "of no committed or prepared transaction",
}
_OTHER_NAMES: Final = {"count": "messages", "pages.first": "page", "queue_record.lsn": "record_lsn"}


def in_words(item: Item) -> list[str]:
    """The lines of an item."""
    lines = [_finding(item)] if isinstance(item, Finding) else _lines(item)
    return [line if line.isprintable() else ascii(line)[1:-1] for line in lines]


def number(value: int) -> str:
    """Format a number, with spaces between thousands."""
    return f"{value:,}".replace(",", " ")


def time(time_us: int) -> str:
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us} us since 1970"
    return f"{moment:%Y-%m-%d %H:%M:%S.%f} UTC"


def _finding(item: Finding) -> str:
    place = {"file": item.file, "offset": item.offset if item.file else None, "lsn": item.lsn}
    where = ", ".join(_phrases("finding", place))
    message = f"{where}: {item.message}" if where else item.message
    lost = f"; lost: {item.lost}" if item.lost else ""
    return f"{'DAMAGE' if item.damage else 'note'}: {message}{lost}"


def _lines(item: Item) -> Iterator[str]:
    kind, values = item.item, plain_value(item)
    if kind in _OF_A_QUEUE:
        del values["queue_id"], values["queue"]
    title = "" if kind in _UNTITLED else f"{_label(kind)}: "
    indent = _DETAIL if kind in _INDENTED else ""
    below = {name: members for name, members in values.items() if _has_fields(members)}
    own = {name: value for name, value in values.items() if name not in below}
    yield f"{indent}{title}{', '.join(_phrases(kind, own))}"
    for name, members in below.items():
        singular = _singular(name)
        yield from (
            f"{_DETAIL}{_label(singular)}: {', '.join(_phrases(singular, each))}"
            for each in members
        )


def _phrases(kind: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a phrase for each field that has something to say."""
    for name, value in values.items():
        own = f"{kind}.{name}"
        if own in _FOR_PROGRAMS or name in _FOR_PROGRAMS:
            continue
        if f"{name}_id" in values or (name == "name" and f"{kind}_id" in values):
            continue  # the number's phrase has it
        if value is None:
            phrase = _MISSING.get(own, "")
            if name == "position" and values.get("messages"):
                phrase = "no position"
        else:
            phrase = _phrase(kind, _OTHER_NAMES.get(own, name), value, values)
        if phrase:
            yield phrase


def _phrase(kind: str, name: str, value: Any, values: Mapping[str, Any]) -> str:
    """Return the phrase of a value that is there."""
    own = f"{kind}.{name}"
    label = "" if name in _VALUE_ALONE or own in _VALUE_ALONE else f"{_label(name)} "
    if isinstance(value, bool):
        return "" if _USUAL.get(name) == value else f"{'' if value else 'not '}{_label(name)}"
    if isinstance(value, int):
        return _number(kind, _OTHER_NAMES.get(name, name), value, values)
    if value in ("", [], {}):
        return ""
    if isinstance(value, Mapping) and (not label or name == "records"):
        return label + ", ".join(_phrases(name, value))
    if isinstance(value, str) and (name in _UNQUOTED or own in _UNQUOTED):
        return label + value
    return label + ", ".join(map(_brief, value if isinstance(value, list) else [value]))


def _number(kind: str, name: str, value: int, values: Mapping[str, Any]) -> str:
    noun = name.removesuffix("_id")
    if value == 0 and (name in _NONE_AT_0 or f"{kind}.{name}" in _NONE_AT_0):
        phrase = ""
    elif name.endswith("_id") and (noun == kind or noun in values):
        title = values.get("name" if noun == kind else noun)
        phrase = f"{noun} #{value} {title!r}" if title else f"{noun} #{value}"
    elif name.endswith("_us"):
        phrase = f"{_label(name[:-3])} {time(value)}"
    elif name.endswith("lsn"):
        phrase = f"{_label(name[:-3])}LSN {value:#x}"
    elif name in _IN_BYTES or name.endswith("_bytes"):
        phrase = f"{_label(name.removesuffix('_bytes'))} {number(value)} bytes"
    elif name.endswith("s"):
        phrase = f"{number(value)} {_label(_singular(name) if value == 1 else name)}"
    else:
        phrase = f"{_label(name)} {value}"
    return phrase


def _has_fields(value: object) -> bool:
    """Return True for a list of members with fields: each has a line of its own."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _label(name: str) -> str:
    return name if name.isupper() else name.replace("_", " ")


def _singular(name: str) -> str:
    return f"{name[:-3]}y" if name.endswith("ies") else name.removesuffix("s")


def _brief(value: object) -> str:
    """A long value, as a state's is, is cut off."""
    text, limit = repr(value), FIELD_START_CHARACTERS
    return text if len(text) <= limit else f"{text[:limit]}... ({number(len(text))} characters)"

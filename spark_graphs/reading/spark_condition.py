"""The condition of a read, which chooses the rows that Spark's own filter would.

YCO1. A timestamp without a zone is one of the session's (`spark.sql.session.timeZone`), which is
    known in the tasks: until then such a value stands for nothing. A column without a zone is
    compared by its clock, with values that have none either. (Spark takes its values for times of
    the session's zone, which differs in an hour that clocks leave out.)
YCO2. NaN is above all numbers, and equal to itself.
YCO3. Names are compared as `spark.sql.caseSensitive` says. When a read is planned that is not
    known: there a name that differs from a column's by its case alone is taken for it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Mapping
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct
from msgspec.structs import replace
from pyspark import TaskContext

from quire.errors import InvalidArgument
from quire.libraries import pa
from quire.rows.row_filter import (
    Both,
    Compared,
    Instant,
    NotANumber,
    Null,
    RowCondition,
    bound,
    parse,
)

_ZONE = "spark.sql.session.timeZone"
_CASE_SENSITIVE = "spark.sql.caseSensitive"
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?", re.IGNORECASE)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


class SparkCondition(Struct, frozen=True):
    """A condition with values of its columns' types, but for what the session says."""

    condition: RowCondition
    other_case: dict[str, str]  # names that are written otherwise than the columns', and these

    def in_session(self) -> RowCondition:
        """Return it as the session of the task at hand has it (YCO1, YCO3).

        Raises InvalidArgument for a name, or a zone, that the session does not know.
        """
        context = TaskContext.get()
        if context is None:  # nobody's session: as in UTC, which instants are in anyway
            return _in_zone(self.condition, dt.UTC)
        if self.other_case and context.getLocalProperty(_CASE_SENSITIVE) == "true":
            name, column = next(iter(self.other_case.items()))
            raise InvalidArgument(
                f"where: there is no column '{name}', as {_CASE_SENSITIVE} is true; there is "
                f"'{column}'"
            )
        return _in_zone(self.condition, zone_named(context.getLocalProperty(_ZONE)))


def spark_condition(text: str, types: Mapping[str, pa.DataType]) -> SparkCondition:
    """Return the condition of a text. Raises InvalidArgument, naming the column."""
    other_case: dict[str, str] = {}
    condition = bound(_with_columns(parse(text), types, other_case), types)
    _check_zones(condition)
    return SparkCondition(_with_nan(condition, types), other_case)


def resolved(name: str, columns: Collection[str]) -> str | None:
    """Return the column of a name, or None. Raises InvalidArgument if it may be several (YCO3)."""
    if name in columns:
        return name
    found = [each for each in columns if each.lower() == name.lower()]
    if len(found) > 1:
        raise InvalidArgument(
            f"column '{name}' may be {' or '.join(map(repr, found))}: write it as one of them"
        )
    return found[0] if found else None


def zone_named(name: str | None) -> dt.tzinfo | None:
    """Return the zone that Spark has under a name; None, for none: that of this machine."""
    if name is None:
        return None
    if name.upper() in ("Z", "UTC", "GMT", "UT"):
        return dt.UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        distance = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return dt.timezone(-distance if offset[1] == "-" else distance)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(
            f"where: the session's time zone '{name}' is not known on this machine: install the "
            "package tzdata, or write timestamps with a zone, as '2024-02-29T12:00:00Z'"
        ) from None


def _check_zones(condition: RowCondition) -> None:
    if isinstance(condition, Both):
        _check_zones(condition.left)
        _check_zones(condition.right)
        return
    if not isinstance(condition, Compared) or not isinstance(condition.value, Instant):
        return
    if condition.value.has_zone and condition.scalar.type.tz is None:
        raise InvalidArgument(
            f"where: column '{condition.column}' has no time zone: write the timestamp that it is "
            "compared with as its clock shows it, without a zone"
        )


def _with_columns(
    condition: RowCondition, types: Mapping[str, pa.DataType], other_case: dict[str, str]
) -> RowCondition:
    """Return the condition with the names that the columns have."""
    if isinstance(condition, Both):
        left = _with_columns(condition.left, types, other_case)
        return Both(left, _with_columns(condition.right, types, other_case), condition.is_and)
    column = resolved(condition.column, types)
    if column is None or column == condition.column:
        return condition
    other_case[condition.column] = column
    return replace(condition, column=column)


def _with_nan(condition: RowCondition, types: Mapping[str, pa.DataType]) -> RowCondition:
    """Return the condition with NaN above all numbers (YCO2); no value that is written is NaN."""
    if isinstance(condition, Both):
        left, right = _with_nan(condition.left, types), _with_nan(condition.right, types)
        return Both(left, right, condition.is_and)
    is_above = isinstance(condition, Compared) and condition.sign in (">", ">=")
    if is_above and pa.types.is_floating(types[condition.column]):
        return Both(condition, NotANumber(condition.column), is_and=False)
    return condition


def _in_zone(condition: RowCondition, zone: dt.tzinfo | None) -> RowCondition:
    if isinstance(condition, Both):
        left, right = _in_zone(condition.left, zone), _in_zone(condition.right, zone)
        return Both(left, right, condition.is_and)
    if isinstance(condition, (Null, NotANumber)) or not isinstance(condition.value, Instant):
        return condition
    type_, value = condition.scalar.type, condition.value
    if value.has_zone or type_.tz is None:
        return condition
    try:
        # Of an hour that comes twice the first one, of one that is left out the next one.
        local = (_EPOCH + value.microseconds * _MICROSECOND).replace(tzinfo=zone)
        instant = (local if zone else local.astimezone()).astimezone(dt.UTC)
    except OverflowError:
        raise InvalidArgument("where: a timestamp is of the years 1 to 9999") from None
    moved = Instant((instant - _EPOCH) // _MICROSECOND, has_zone=True)
    scalar = pa.scalar(moved.microseconds, pa.int64()).cast(type_)
    return Compared(condition.column, condition.sign, moved, scalar)

"""Conditions on columns: a small grammar, checked against the columns before anything is read.

    position >= 990 and (country = 'NL' or amount is null) and not day < date '2024-01-01'

| form | |
|---|---|
| `a = 1`, `<>`, `<`, `<=`, `>`, `>=` (also `==`, `!=`) | a column and a value, or the reverse |
| `a between 1 and 9`, `a in (1, 2)` | |
| `a is null`, `a is not null` | |
| `and`, `or`, `not`, parentheses | `not` before `and` before `or` |

Values are numbers, 'text' (a quote in it doubled), true, false, date '2024-02-29' and timestamp
'2024-02-29 12:00:00', which is in UTC if it names no zone (Spark's reads take the session's). A
column's name stands alone, or in backticks; of `_meta` with a point: `_meta.priority`. Nothing of a
condition is ever run as code.

- RF1: a row is chosen if the condition is true for it. As in SQL, what is compared with null is
  neither true nor false; NaN is neither less nor more than anything, nor equal.
- RF2: a block may be left out by how far its columns reach only if no row of it can be chosen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final, NoReturn, Protocol, TypeAlias

from msgspec import Struct

from quire.definitions.tokens import Tokens
from quire.errors import InvalidArgument
from quire.libraries import pa, pc
from quire.limits import MAX_FILTER_BYTES, MAX_FILTER_DEPTH

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<name>`(?:[^`]|``)+`(?:\.\w+)?)
        |(?P<text>'(?:[^']|'')*')
        |(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
        |(?P<word>[^\W\d][\w.]*)
        |(?P<sign><=>|<=|>=|<>|!=|==|=|<|>|\(|\)|,))""",
    re.VERBOSE,
)
_SIGNS: Final = {"==": "=", "!=": "<>"}
_OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_TURNED: Final = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_FUNCTION: Final = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_KEYWORDS: Final = {"and", "or", "not", "in", "is", "null", "between", "true", "false"}

ColumnOf: TypeAlias = "Callable[[str], pa.Array]"
"""The values of the column of a name."""
Range = tuple[float, float]


class Reaching(Protocol):
    """The reach of a column: see `quire.rows.column_reach`."""

    @property
    def nulls(self) -> int:
        """The number of its values that are null."""

    @property
    def least(self) -> Any:
        """The least value that is not null, or None: it is not known."""

    @property
    def greatest(self) -> Any:
        """The greatest one."""


class Compared(Struct, frozen=True):
    """A column and a value."""

    column: str
    sign: str
    value: Any  # a number, a text, a bool, or of a date or time what is told by `plain`
    scalar: Any = None  # pa.Scalar of the column's type, once that is known (LD1)

    def mask(self, columns: ColumnOf) -> pa.Array:
        """Return a mask of the rows for which it is true."""

        array, scalar = columns(self.column), self.scalar
        if isinstance(scalar, pa.DoubleScalar) and pa.types.is_integer(array.type):
            array = array.cast(pa.float64(), safe=False)  # those of more than 53 bits are rounded
        return pc.call_function(_FUNCTION[self.sign], [array, scalar])

    def may(self, reaches: Mapping[str, Reaching], count: int) -> bool:
        """Return True if any row of a block with these reaches may be chosen."""
        reach = reaches.get(self.column)
        if reach is None:
            return True
        if reach.nulls == count:
            return False
        least, greatest, value = reach.least, reach.greatest, plain(self.value)
        if isinstance(value, float):  # as `mask` compares whole numbers
            least, greatest = (
                float(end) if isinstance(end, int) else end for end in (least, greatest)
            )
        with suppress(TypeError):  # of decimals only the digits are told
            if self.sign in ("=", "<", "<=") and least is not None and value < least:
                return False
            if self.sign in ("=", ">", ">=") and greatest is not None and value > greatest:
                return False
        ends = {"<": least, ">": greatest}
        if self.sign in ends and value == ends[self.sign]:
            return False
        return not (self.sign == "<>" and least is not None and least == greatest == value)


class Null(Struct, frozen=True):
    """A column that is null, or is not."""

    column: str
    is_null: bool

    def mask(self, columns: ColumnOf) -> pa.Array:
        """Return a mask of the rows for which it is true."""
        array = columns(self.column)
        return array.is_null() if self.is_null else array.is_valid()

    def may(self, reaches: Mapping[str, Reaching], count: int) -> bool:
        """Return True if any row of a block with these reaches may be chosen."""
        reach = reaches.get(self.column)
        return reach is None or (reach.nulls > 0 if self.is_null else reach.nulls < count)


class NotANumber(Struct, frozen=True):
    """A column that is NaN, for readers that have it above all numbers; it is not written."""

    column: str

    def mask(self, columns: ColumnOf) -> pa.Array:
        """Return a mask of the rows for which it is true."""
        return pc.is_nan(columns(self.column))

    def may(self, reaches: Mapping[str, Reaching], count: int) -> bool:
        """Return True if any row of a block with these reaches may be chosen."""
        reach = reaches.get(self.column)  # of a block with NaN no least value is known
        return reach is None or (reach.nulls < count and reach.least is None)


class Both(Struct, frozen=True):
    """Two conditions, both of which or one of which must be true."""

    left: RowCondition
    right: RowCondition
    is_and: bool

    def mask(self, columns: ColumnOf) -> pa.Array:
        """Return a mask of the rows for which it is true."""

        join = pc.and_kleene if self.is_and else pc.or_kleene
        return join(self.left.mask(columns), self.right.mask(columns))

    def may(self, reaches: Mapping[str, Reaching], count: int) -> bool:
        """Return True if any row of a block with these reaches may be chosen."""
        left, right = self.left.may(reaches, count), self.right.may(reaches, count)
        return left and right if self.is_and else left or right


RowCondition = Compared | Null | NotANumber | Both


def column_names(condition: RowCondition) -> set[str]:
    """Return the columns that a condition is about."""
    if isinstance(condition, Both):
        return column_names(condition.left) | column_names(condition.right)
    return {condition.column}


def bounds(condition: RowCondition, column: str) -> Range:
    """Return the least and the greatest number of the column where a condition may be true."""
    if isinstance(condition, Both):
        (low, high), (least, greatest) = (
            bounds(part, column) for part in (condition.left, condition.right)
        )
        if condition.is_and:
            return max(low, least), min(high, greatest)
        return min(low, least), max(high, greatest)
    if (
        not isinstance(condition, Compared)
        or condition.column != column
        or not isinstance(condition.value, (int, float))
    ):
        return -math.inf, math.inf
    low = condition.value if condition.sign in ("=", ">", ">=") else -math.inf
    high = condition.value if condition.sign in ("=", "<", "<=") else math.inf
    return low, high


def parse(text: str) -> RowCondition:
    """A condition. Raises InvalidArgument where it cannot be read."""
    return _Reader(text).condition()


def bound(condition: RowCondition, types: Mapping[str, pa.DataType]) -> RowCondition:
    """A condition with values of its columns' types. Raises InvalidArgument, naming the column."""
    if isinstance(condition, Both):
        left, right = bound(condition.left, types), bound(condition.right, types)
        return Both(left, right, condition.is_and)
    type_ = types.get(condition.column)
    if type_ is None:
        raise InvalidArgument(
            f"where: there is no column '{condition.column}'; there are {', '.join(types)}"
        )
    if isinstance(condition, (Null, NotANumber)):
        return condition
    scalar = _scalar(condition, type_)
    return Compared(condition.column, condition.sign, condition.value, scalar)


def chosen(condition: RowCondition, columns: ColumnOf) -> pa.Array:
    """The rows for which it is true (RF1), as a mask without nulls."""
    return condition.mask(columns).fill_null(False)


class Day(Struct, frozen=True):
    """A date, as days since 1970."""

    days: int


class Instant(Struct, frozen=True):
    """A time, as microseconds since 1970: of UTC, where its text has no zone."""

    microseconds: int
    has_zone: bool = False


def plain(value: Any) -> Any:
    """A value as the statistics of blocks have it."""
    if isinstance(value, Day):
        return value.days
    return value.microseconds if isinstance(value, Instant) else value


def _scalar(condition: Compared, type_: pa.DataType) -> pa.Scalar:
    value, types = condition.value, pa.types
    is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_):
        if is_number:
            return pa.scalar(Decimal(str(value)) if types.is_decimal(type_) else value)
    elif types.is_boolean(type_):
        if isinstance(value, bool):
            return pa.scalar(value)
    elif types.is_string(type_):
        if isinstance(value, str):
            return pa.scalar(value)
    elif types.is_date(type_):
        if isinstance(value, Day):
            return pa.scalar(value.days, pa.int32()).cast(pa.date32())
    elif types.is_timestamp(type_) and isinstance(value, Instant):
        return pa.scalar(value.microseconds, pa.int64()).cast(type_)
    raise InvalidArgument(
        f"where: column '{condition.column}' of type {type_} is compared with {_shown(value)}: "
        "give a number for numbers, 'text' for strings, date '...' and timestamp '...' for times, "
        "true or false for booleans; columns of other types can only be tested for null"
    )


def _shown(value: Any) -> str:
    if isinstance(value, (Day, Instant)):
        return "a date" if isinstance(value, Day) else "a timestamp"
    return repr(value)[:100]


def moment(word: str, text: str) -> Day | Instant:
    """Return the value of the text after `date` or `timestamp`. Raises InvalidArgument."""
    try:
        if word == "date":
            return Day(pa.scalar(text).cast(pa.date32()).value)
        has_zone = re.search(r"(Z|[+-]\d\d:?\d\d)$", text) is not None
        stamp = pa.timestamp("us", "UTC" if has_zone else None)
        return Instant(pa.scalar(text).cast(stamp).value, has_zone)
    except pa.ArrowException:
        raise InvalidArgument(f"where: {word} {text!r:.100} is none") from None


class _Reader:
    """Reads a condition, one token after another."""

    def __init__(self, text: str) -> None:
        if len(text.encode()) > MAX_FILTER_BYTES:
            raise InvalidArgument(f"where: a condition may have {MAX_FILTER_BYTES} bytes")
        self._text = text
        self._tokens = Tokens(text, _TOKEN, self._fail)
        self._depth = 0

    def condition(self) -> RowCondition:
        found = self._any(negated=False)
        self._tokens.expect_end()
        return found

    def _any(self, *, negated: bool) -> RowCondition:
        found = self._conjunction(negated=negated)
        while self._tokens.take_word("or"):
            found = Both(found, self._conjunction(negated=negated), is_and=negated)
        return found

    def _conjunction(self, *, negated: bool) -> RowCondition:
        found = self._one(negated=negated)
        while self._tokens.take_word("and"):
            found = Both(found, self._one(negated=negated), is_and=not negated)
        return found

    def _one(self, *, negated: bool) -> RowCondition:
        self._depth += 1
        if self._depth > MAX_FILTER_DEPTH:
            raise InvalidArgument(f"where: nested more than {MAX_FILTER_DEPTH} deep")
        try:
            if self._tokens.take_word("not"):
                return self._one(negated=not negated)
            if self._tokens.take_sign("("):
                found = self._any(negated=negated)
                self._tokens.expect_sign(")")
                return found
            return self._test(negated=negated)
        finally:
            self._depth -= 1

    def _test(self, *, negated: bool) -> RowCondition:
        kind, text = self._tokens.peek()
        is_value = kind in ("text", "number") or text.lower() in ("true", "false")
        is_time = text.lower() in ("date", "timestamp") and self._tokens.peek(1)[0] == "text"
        if is_value or is_time:
            value = self._value()
            sign = _TURNED[self._compare()]
            return Compared(self._column(), _OPPOSITE[sign] if negated else sign, value)
        column = self._column()
        if self._tokens.take_word("is"):
            is_null = not self._tokens.take_word("not")
            if not self._tokens.take_word("null"):
                self._tokens.fail_here()
            return Null(column, is_null != negated)
        if self._tokens.take_word("not"):
            negated = not negated
            if self._tokens.peek()[1].lower() not in ("in", "between"):
                self._tokens.fail_here()
        if self._tokens.take_word("in"):
            return self._in(column, negated=negated)
        if self._tokens.take_word("between"):
            low = self._value()
            if not self._tokens.take_word("and"):
                self._tokens.fail_here()
            high = self._value()
            signs = ("<", ">") if negated else (">=", "<=")
            ends = Compared(column, signs[0], low), Compared(column, signs[1], high)
            return Both(*ends, is_and=not negated)
        sign = self._compare()
        return Compared(column, _OPPOSITE[sign] if negated else sign, self._value())

    def _in(self, column: str, *, negated: bool) -> RowCondition:
        self._tokens.expect_sign("(")
        sign = "<>" if negated else "="
        found: RowCondition = Compared(column, sign, self._value())
        while self._tokens.take_sign(","):
            found = Both(found, Compared(column, sign, self._value()), is_and=negated)
        self._tokens.expect_sign(")")
        return found

    def _compare(self) -> str:
        kind, text = self._tokens.next()
        sign = _SIGNS.get(text, text)
        if kind != "sign" or sign not in _FUNCTION:
            self._fail(text)
        return sign

    def _column(self) -> str:
        kind, text = self._tokens.next()
        if kind == "name":
            name, _, inner = text[1:].rpartition("`")
            return name.replace("``", "`") + inner
        if kind != "word" or text.lower() in _KEYWORDS:
            self._fail(text)
        return text

    def _value(self) -> Any:
        kind, text = self._tokens.next()
        if kind == "number":
            if re.fullmatch(r"-?\d+", text):
                return int(text)
            return float(text)
        if kind == "text":
            return text[1:-1].replace("''", "'")
        word = text.lower()
        if kind == "word" and word in ("true", "false"):
            return word == "true"
        if kind != "word" or word not in ("date", "timestamp") or self._tokens.peek()[0] != "text":
            self._fail(text)
        return moment(word, self._value())

    def _fail(self, there: str) -> NoReturn:
        raise InvalidArgument(
            f"where {self._text!r:.200}: it cannot be read at {there!r:.50}: give a condition as "
            "\"amount > 5 and country = 'NL'\""
        )

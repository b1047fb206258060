"""Numbers as selectors have them: exact ones of 64 bits, and approximate ones, which are doubles.

- SN1: exact with exact gives exact, and cuts a quotient off towards zero. What 64 bits do not hold,
  and what is divided by an exact zero, has no value. All else is done with doubles, as in IEEE 754.
- SN2: one message alone and a column of messages give the same.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from quire.libraries import np
from quire.limits import MAX_NUMBER_CHARACTERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1

_TEXT: Final = re.compile(r"[+-]?(?:[0-9]+(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?")
_UNDERSCORE: Final = re.compile(r"(?<=[0-9a-fA-F])_+(?=[0-9a-fA-F])")
_EXACT_FORMS: Final = (
    (10, re.compile(r"(0|[1-9][0-9]*)[lL]?")),
    (8, re.compile(r"0([0-7]+)[lL]?")),
    (16, re.compile(r"0[xX]([0-9a-fA-F]+)[lL]?")),
    (2, re.compile(r"0[bB]([01]+)[lL]?")),
)
_APPROXIMATE_FORM: Final = re.compile(
    r"((?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eEdDfF]))(?:[eE][+-]?[0-9]+)?)[dDfF]?"
)
_HEXADECIMAL_FORM: Final = re.compile(
    r"(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[dDfF]?"
)

Number = int | float


def number_of(text: str) -> Number | None:
    """The number that a text is, in decimal digits; None: it is none."""
    if len(text) > MAX_NUMBER_CHARACTERS:
        return None
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    if found.group(1) is None and found.group(2) is None and found.group(3) is None:
        exact = int(text)
        return exact if LEAST <= exact <= GREATEST else float(text)
    return float(text)


def number_written(text: str, sign: str = "") -> Number:
    """The number that is written in Java's way, behind a sign. Raises ValueError: why."""
    plain = _UNDERSCORE.sub("", text)
    for base, form in _EXACT_FORMS:
        found = form.fullmatch(plain)
        if found is not None:
            exact = int(found[1], base) * (-1 if sign == "-" else 1)
            if not LEAST <= exact <= GREATEST:
                raise ValueError("an exact number has 64 bits: write .0 behind it for a double")
            return exact
    found = _APPROXIMATE_FORM.fullmatch(plain) or _HEXADECIMAL_FORM.fullmatch(plain)
    if found is None:
        raise ValueError(f"{text!r:.50} is no number")
    try:
        approximate = float.fromhex(found[1]) if found.re is _HEXADECIMAL_FORM else float(found[1])
    except OverflowError:
        approximate = math.inf
    if math.isinf(approximate):
        raise ValueError(f"{text!r:.50} is greater than any double")
    return -approximate if sign == "-" else approximate


def arithmetic_of(sign: str, left: Number | None, right: Number | None) -> Number | None:
    """Return the result for two numbers; None: it has no value."""
    if left is None or right is None:
        return None
    if isinstance(left, int) and isinstance(right, int):
        return _exact_of(sign, left, right)
    a, b = float(left), float(right)
    if sign == "/":
        return _quotient_of(a, b)
    return a + b if sign == "+" else a - b if sign == "-" else a * b


def _exact_of(sign: str, left: int, right: int) -> int | None:
    if sign == "/":
        if right == 0:
            return None
        quotient = abs(left) // abs(right)
        exact = quotient if (left < 0) == (right < 0) else -quotient
    else:
        exact = left + right if sign == "+" else left - right if sign == "-" else left * right
    return exact if LEAST <= exact <= GREATEST else None


def _quotient_of(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def is_related(sign: str, left: Number, right: Number) -> bool:
    """Return True if a comparison of two numbers is true."""
    if not (isinstance(left, int) and isinstance(right, int)):
        left, right = float(left), float(right)
    if sign in ("=", "<>"):
        return (left == right) == (sign == "=")
    if sign in ("<", "<="):
        return left < right or (sign == "<=" and left == right)
    return left > right or (sign == ">=" and left == right)


Flags: TypeAlias = "NDArray[np.bool_] | np.bool_"


class NumberColumn(NamedTuple):
    """A number of each message, or none; one that is the same for all is there once, without a
    length.

    Where it is exact its value is in `exact`, else in `approximate`. One of the two is None where
    all are of the other kind, and where a number is not known both are anything.
    """

    exact: Any  # int64
    approximate: Any  # float64
    is_exact: Flags
    known: Flags

    @classmethod
    def of_exact(cls, values: Any, known: Flags | None = None) -> NumberColumn:
        """Return a column of exact numbers: an array of int64, or one number."""
        values = np.int64(values) if isinstance(values, int) else values
        return cls(values, None, np.True_, np.True_ if known is None else known)

    @classmethod
    def of_approximate(cls, values: Any, known: Flags | None = None) -> NumberColumn:
        """Return a column of approximate numbers: an array of float64, or one number."""
        values = np.float64(values) if isinstance(values, float) else values
        return cls(None, values, np.False_, np.True_ if known is None else known)

    @classmethod
    def of_number(cls, value: Number | None) -> NumberColumn:
        """The same for all."""
        if value is None:
            return cls.of_exact(0, np.False_)
        return cls.of_exact(value) if isinstance(value, int) else cls.of_approximate(value)

    def doubles(self) -> Any:
        """Return all numbers as doubles."""
        if self.exact is None:
            return self.approximate
        doubles = np.float64(self.exact)
        return (
            doubles
            if self.approximate is None
            else np.where(self.is_exact, doubles, self.approximate)
        )


def arithmetic(sign: str, left: NumberColumn, right: NumberColumn) -> NumberColumn:
    """Return the result for two columns."""
    known, is_exact = left.known & right.known, left.is_exact & right.is_exact
    exact = approximate = None
    with np.errstate(all="ignore"):
        if left.exact is not None and right.exact is not None:
            exact, fits = _EXACT[sign](left.exact, right.exact)
            known = known & (fits | ~is_exact)
        if left.approximate is not None or right.approximate is not None:
            approximate = getattr(np, _APPROXIMATE[sign])(left.doubles(), right.doubles())
    return NumberColumn(exact, approximate, is_exact, known)


def related(sign: str, left: NumberColumn, right: NumberColumn) -> Flags:
    """Return where a comparison of two columns is true, if both are known."""
    relation = getattr(np, _RELATIONS[sign])
    if left.exact is None or right.exact is None:
        doubles: Flags = relation(left.doubles(), right.doubles())
        return doubles
    exact: Flags = relation(left.exact, right.exact)
    if left.approximate is None and right.approximate is None:
        return exact
    doubles = relation(left.doubles(), right.doubles())
    return np.where(left.is_exact & right.is_exact, exact, doubles)


_RELATIONS: Final = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_APPROXIMATE: Final = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}


def _sum(a: Any, b: Any) -> tuple[Any, Flags]:
    total = a + b
    return total, ((a ^ total) & (b ^ total)) >= 0


def _difference(a: Any, b: Any) -> tuple[Any, Flags]:
    rest = a - b
    return rest, ((a ^ b) & (a ^ rest)) >= 0


def _product(a: Any, b: Any) -> tuple[Any, Flags]:
    product = a * b
    is_zero = a == 0
    # What has wrapped is not what the quotient gives back; but for the one that wraps itself.
    back = product // np.where(is_zero, 1, a) == b
    return product, is_zero | (back & ~((a == -1) & (b == LEAST)))


def _quotient(a: Any, b: Any) -> tuple[Any, Flags]:
    fits = (b != 0) & ~((a == LEAST) & (b == -1))
    divisor = np.where(fits, b, 1)
    quotient = a // divisor
    is_cut = (quotient * divisor != a) & ((a < 0) != (divisor < 0))
    return quotient + is_cut, fits


_EXACT: Final = {"+": _sum, "-": _difference, "*": _product, "/": _quotient}

"""Reading a selector's tree as a condition: its names become values, and kinds have to fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from quire.errors import InvalidArgument
from quire.libraries import pa
from quire.rows import row_filter

from .grammar import parse, wrong
from .like_pattern import LikePattern
from .names import DELIVERY_MODE, HEADER_NAMES, header_named, named
from .numbers import number_written
from .truths import (
    All,
    Among,
    Comparison,
    FixedTruth,
    IsThere,
    IsTrue,
    Like,
    Not,
    OfRow,
    OneOf,
    Truth,
)
from .values import (
    Arithmetic,
    AsBoolean,
    AsNumber,
    Attribute,
    Literal,
    PayloadText,
    RowColumn,
    Value,
    ValueKind,
)

if TYPE_CHECKING:
    from .grammar import Parsed

_TURNED: Final = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_NAMES: Final = ("NAME", "QUOTED")


def read_selector(text: str, schema: pa.Schema | None, *, is_volatile: bool = False) -> Truth:
    """The condition. Raises InvalidSelector, with line and column."""
    if not text.strip(" \t\f\r\n"):
        return FixedTruth(True)
    return _Reading(text, schema, is_volatile=is_volatile).truth(parse(text))


class _Reading:
    """The reading of one selector."""

    def __init__(self, text: str, schema: pa.Schema | None, *, is_volatile: bool) -> None:
        self._text, self._schema, self._is_volatile = text, schema, is_volatile

    def truth(self, node: Parsed) -> Truth:
        """Return the condition that stands at a node."""
        kind, parts = _kind_of(node), _parts_of(node)
        if kind in ("TRUE", "FALSE"):
            return FixedTruth(kind == "TRUE")
        if kind in _NAMES:
            return IsTrue(self._boolean(self._value(node), node))
        if kind in ("any", "all"):
            joined = [self.truth(part) for part in parts]
            return OneOf(joined) if kind == "any" else All(joined)
        if kind == "negated":
            return Not(self.truth(parts[1]))
        if kind == "compared":
            left, sign, right = parts
            return self._compared(str(sign), self._value(left), self._value(right), node)
        if kind not in self._tests:
            self._fail(node, "a value stands where a condition may stand: compare it")
        place, is_not, *others = parts
        made = self._tests[kind](self, node, place, others)
        return made if is_not is None else Not(made)

    def _between(self, node: Parsed, place: Parsed, ends: Sequence[Parsed]) -> Truth:
        value, least, greatest = map(self._value, (place, *ends))
        return All(
            [self._compared(">=", value, least, node), self._compared("<=", value, greatest, node)]
        )

    def _among(self, node: Parsed, place: Parsed, items: Sequence[Parsed]) -> Truth:
        value, literals = self._named(place, "IN"), [self._value(item) for item in items]
        texts = [each.value for each in literals if isinstance(each, Literal)]
        if (
            not isinstance(value, (RowColumn, Literal))
            and value.kind is ValueKind.TEXT
            and all(isinstance(each, str) for each in texts)
        ):
            return Among(value, frozenset(texts))
        return OneOf([self._compared("=", value, literal, node) for literal in literals])

    def _like(self, node: Parsed, place: Parsed, texts: Sequence[Parsed]) -> Truth:
        value = self._named(place, "LIKE")
        if value.kind is not ValueKind.TEXT:
            self._fail(node, f"LIKE is for texts, and this is a {value.kind.value}")
        pattern, escape = (None if each is None else _unquoted(str(each)) for each in texts)
        if escape is not None and len(escape) != 1:
            self._fail(texts[1], "ESCAPE needs one character")
        try:
            like = Like(value, LikePattern(str(pattern), escape))
        except ValueError as error:
            self._fail(texts[0], f"in the pattern {error}: it may stand before _, % and itself")
        return FixedTruth(like.pattern.is_like(value.value)) if isinstance(value, Literal) else like

    def _null(self, node: Parsed, place: Parsed, nothing: Sequence[Parsed]) -> Truth:
        value = self._named(place, "IS NULL")
        if isinstance(value, RowColumn):
            return OfRow(row_filter.Null(value.name, is_null=True), value.type)
        return FixedTruth(False) if isinstance(value, Literal) else Not(IsThere(value))

    _tests: Final[Mapping[str, Callable[[_Reading, Parsed, Parsed, Sequence[Parsed]], Truth]]] = {
        "between": _between,
        "among": _among,
        "like": _like,
        "null": _null,
    }

    def _compared(self, sign: str, left: Value, right: Value, node: Parsed) -> Truth:
        left, right = self._alike(sign, left, right)
        kind = left.kind
        if kind is not right.kind:
            self._fail(node, f"a {kind.value} is compared with a {right.kind.value}")
        if kind in (ValueKind.TEXT, ValueKind.BOOLEAN) and sign not in ("=", "<>"):
            self._fail(node, f"a {kind.value} can be compared by = and <>, not by {sign}")
        if isinstance(right, RowColumn) and isinstance(left, Literal):
            left, right, sign = right, left, _TURNED[sign]
        if isinstance(left, RowColumn) and isinstance(right, Literal):
            return self._of_row(sign, left, right, node)
        if kind not in (ValueKind.TEXT, ValueKind.BOOLEAN, ValueKind.NUMBER):
            self._fail(node, f"a {kind.value} can be compared with what is written only")
        return Comparison(sign, left, right)

    def _alike(self, sign: str, left: Value, right: Value) -> tuple[Value, Value]:
        """Texts that may be read as something else, as what they are compared with."""
        pair = [left, right]
        for index, other in ((0, right), (1, left)):
            if isinstance(pair[index], (Attribute, PayloadText)):
                if other.kind is ValueKind.NUMBER or (_is_text(other) and sign not in ("=", "<>")):
                    pair[index] = AsNumber(pair[index])
                elif other.kind is ValueKind.BOOLEAN:
                    pair[index] = AsBoolean(pair[index])
        return pair[0], pair[1]

    def _of_row(self, sign: str, column: RowColumn, literal: Literal, node: Parsed) -> Truth:
        type_ = column.type
        compared = row_filter.Compared(column.name, sign, literal.value)
        try:
            bound = row_filter.bound(compared, {column.name: type_})
            bound.mask(lambda name: pa.nulls(0, type_))
        except (InvalidArgument, pa.ArrowException) as error:
            self._fail(node, f"the column is {type_}, and cannot be compared so ({error})")
        return OfRow(bound, type_)

    def _value(self, node: Parsed) -> Value:
        """Return the value that stands at a node."""
        kind, parts = _kind_of(node), _parts_of(node)
        if kind == "arithmetic":
            left, sign, right = parts
            return Arithmetic(str(sign), self._number(left), self._number(right))
        if kind == "signed":
            sign, of = parts
            if _kind_of(of) == "NUMBER":
                return self._literal(of, str(sign))
            number = self._number(of)
            return number if sign == "+" else Arithmetic("*", Literal(ValueKind.NUMBER, -1), number)
        if kind in _NAMES:
            return self._named(node, "")
        if kind not in ("TEXT", "NUMBER", "TIME", "TRUE", "FALSE"):
            self._fail(node, "a condition stands where a value may stand")
        return self._literal(node)

    def _number(self, node: Parsed) -> Value:
        value = self._value(node)
        if isinstance(value, (Attribute, PayloadText)):
            return AsNumber(value)
        if value.kind is not ValueKind.NUMBER:
            self._fail(node, f"a {value.kind.value} stands where a number may stand")
        return value

    def _boolean(self, value: Value, node: Parsed) -> Value:
        if isinstance(value, (Attribute, PayloadText)):
            return AsBoolean(value)
        if value.kind is not ValueKind.BOOLEAN:
            self._fail(node, f"a {value.kind.value} stands where a condition may stand: compare it")
        return value

    def _named(self, node: Parsed, what: str) -> Value:
        kind = _kind_of(node)
        if kind not in _NAMES:
            self._fail(node, f"{what} is for a name alone")
        name = str(node)
        if kind == "QUOTED":
            return named(name[1:-1].replace('""', '"'), self._schema, is_quoted=True)
        if name == DELIVERY_MODE:
            return Literal(ValueKind.TEXT, "NON_PERSISTENT" if self._is_volatile else "PERSISTENT")
        if name.startswith("JMS"):
            field = header_named(name)
            if field is None:
                self._fail(node, f"there is no {name}: there are {', '.join(HEADER_NAMES)}")
            return field
        return named(name, self._schema)

    def _literal(self, node: Parsed, sign: str = "") -> Literal:
        kind, text = _kind_of(node), str(node)
        if kind == "TEXT":
            return Literal(ValueKind.TEXT, _unquoted(text))
        if kind == "NUMBER":
            try:
                return Literal(ValueKind.NUMBER, number_written(text, sign))
            except ValueError as error:
                self._fail(node, str(error))
        if kind != "TIME":
            return Literal(ValueKind.BOOLEAN, kind == "TRUE")
        word = text[: text.index("'")].strip().lower()
        try:
            moment = row_filter.moment(word, _unquoted(text[text.index("'") :]))
        except InvalidArgument as error:
            self._fail(node, str(error))
        return Literal(ValueKind.DATE if word == "date" else ValueKind.TIME, moment)

    def _fail(self, node: Parsed, what: str) -> NoReturn:
        line, column = _place_of(node)
        raise wrong(self._text, what, line, column)


def _is_text(value: Value) -> bool:
    return isinstance(value, (Attribute, PayloadText))


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _kind_of(node: Parsed) -> str:
    """The rule of a tree, the terminal of a token."""
    if node is None:
        return ""
    return str(node.type if hasattr(node, "type") else node.data)


def _parts_of(node: Parsed) -> Sequence[Parsed]:
    return getattr(node, "children", ())


def _place_of(node: Parsed) -> tuple[int, int]:
    where = getattr(node, "meta", node)
    return getattr(where, "line", 0), getattr(where, "column", 0)

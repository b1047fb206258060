"""The grammar of selectors, as Jakarta Messaging has it, and the trees that are read by it.

The leaves of a tree are tokens, which know their line and column. The parser's library is imported
when the first selector is read (decision 27).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from quire.errors import InvalidSelector
from quire.libraries.late_modules import stand_in
from quire.limits import MAX_FILTER_BYTES, MAX_FILTER_DEPTH

from .numbers import number_written

if TYPE_CHECKING:
    import lark

    Token: TypeAlias = lark.Token
    Tree: TypeAlias = lark.Tree[lark.Token]
    Parsed: TypeAlias = Tree | Token | None  # None: a word that may be there, and is not
else:
    lark = stand_in("lark")

GRAMMAR: Final = r"""
?start: any

?any: all (_OR all)*
?all: one (_AND one)*
?one: NOT one -> negated
    | test

?test: sum
    | sum SIGN sum -> compared
    | sum [NOT] _BETWEEN sum _AND sum -> between
    | sum [NOT] _IN "(" item ("," item)* ")" -> among
    | sum [NOT] _LIKE TEXT [_ESCAPE TEXT] -> like
    | sum _IS [NOT] _NULL -> null

?sum: product
    | sum PLUS product -> arithmetic
?product: signed
    | product TIMES signed -> arithmetic
?signed: value
    | PLUS signed -> signed

?value: literal
    | NAME
    | QUOTED
    | "(" any ")"
?item: literal
    | PLUS NUMBER -> signed
?literal: TEXT | NUMBER | TIME | TRUE | FALSE

_OR: /or(?![\w$])/i
_AND: /and(?![\w$])/i
NOT: /not(?![\w$])/i
_BETWEEN: /between(?![\w$])/i
_IN: /in(?![\w$])/i
_LIKE: /like(?![\w$])/i
_ESCAPE: /escape(?![\w$])/i
_IS: /is(?![\w$])/i
_NULL: /null(?![\w$])/i
TRUE: /true(?![\w$])/i
FALSE: /false(?![\w$])/i
NAME: /(?!(?:or|and|not|between|in|like|escape|is|null|true|false)(?![\w$]))(?:[^\W\d]|\$)[\w$]*/i
QUOTED: /"(?:[^"]|"")+"/
TEXT: /'(?:[^']|'')*'/
TIME.2: /(?:date|timestamp)[ \t\f\r\n]*'[^']*'/i
NUMBER: /0[xX](?:[pP][+-]|[\w.])*|(?:\d|\.\d)(?:[eE][+-]|[\w.$])*/
SIGN: "<>" | "<=" | ">=" | "=" | "<" | ">"
PLUS: "+" | "-"
TIMES: "*" | "/"
%ignore /[ \t\f\r\n]+/
"""

_WORDS: Final = {
    "NUMBER": "a number",
    "TEXT": "'text'",
    "SIGN": "= <> < <= > >=",
    "PLUS": "+ -",
    "TIMES": "* /",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "NOT": "NOT",
    "_IS": "IS",
    "_NULL": "NULL",
    "_BETWEEN": "BETWEEN",
    "_IN": "IN",
    "_LIKE": "LIKE",
    "_ESCAPE": "ESCAPE",
    "_AND": "AND",
    "_OR": "OR",
    "$END": "the end",
}
"""The words for a terminal in an error, in the order in which they are listed."""


@lru_cache(maxsize=1)
def _parser() -> lark.Lark:
    return lark.Lark(GRAMMAR, parser="lalr", propagate_positions=True, maybe_placeholders=True)


def parse(text: str) -> Parsed:
    """The tree of a selector. Raises InvalidSelector, with line, column and what may stand."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise wrong(text, "it has lone surrogates, which UTF-8 cannot hold") from None
    if size > MAX_FILTER_BYTES:
        raise wrong(text, f"it has {size} bytes; at most {MAX_FILTER_BYTES} are possible")
    try:
        parsed: Parsed = _parser().parse(text)
    except lark.UnexpectedToken as error:
        _check_numbers(text, len(text) if error.token.type == "$END" else error.pos_in_stream)
        there = "it ends" if error.token.type == "$END" else f"{str(error.token)!r:.50} stands"
        raise wrong(
            text,
            f"{there} where {_expected(error.accepts or error.expected)}",
            *_end_of(text, error),
        ) from None
    except lark.UnexpectedCharacters as error:
        there = f"{text[error.pos_in_stream :]!r:.50} cannot be read"
        raise wrong(
            text, f"{there}: {_expected(error.allowed or ())}", error.line, error.column
        ) from None
    _check_depth(text, parsed)
    return parsed


def _check_numbers(text: str, end: int | None) -> None:
    """Raise InvalidSelector for a wrong number before a place where the text is wrong.

    A word that touches a number is read with it: `41AND` is the mistake, and not what follows.
    """
    for token in _parser().lex(text[:end]):
        if token.type == "NUMBER":
            try:
                number_written(str(token), "-")
            except ValueError as error:
                raise wrong(text, str(error), token.line or 0, token.column or 0) from None


def wrong(text: str, what: str, line: int = 0, column: int = 0) -> InvalidSelector:
    """The error; `line` and `column` count from 1, and 0 is no place."""
    place = f" line {line}, column {column}:" if line else ""
    return InvalidSelector(f"selector {text!r:.200}:{place} {what}")


def _expected(terminals: Iterable[str]) -> str:
    there = set(terminals)
    words = [word for name, word in _WORDS.items() if name in there]
    if "NAME" in there:
        words = ["a value", *(["NOT"] if "NOT" in there else [])]
    elif "TRUE" in there:
        words = ["'text'", "a number", "TRUE", "FALSE"]
    return f"{' or '.join([', '.join(words[:-1]), words[-1]] if words[1:] else words)} may stand"


def _end_of(text: str, error: lark.UnexpectedToken) -> tuple[int, int]:
    """Return the place of the mistake: of an end that comes too early, behind the text."""
    if error.token.type != "$END":
        return error.line, error.column
    lines = text.split("\n")
    return len(lines), len(lines[-1]) + 1


def _check_depth(text: str, parsed: Parsed) -> None:
    level = [parsed]
    for _ in range(MAX_FILTER_DEPTH):
        level = [child for each in level for child in getattr(each, "children", ())]
        if not level:
            return
    raise wrong(text, f"it is nested more than {MAX_FILTER_DEPTH} deep")

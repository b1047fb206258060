"""The lines of code that each folder has, without blanks, comments and docstrings.

scripts/code_lines.py              of each folder, and of all production code
scripts/code_lines.py quire/file_dump  of each file there
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "quire", "engine", "journal", "ltds", "writebuffer", "remote", "coordination",
    "spark_graphs", "pyspark_quire",
)  # fmt: skip
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(path: Path) -> int:
    """Lines with code on them."""
    text = path.read_text()
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        # Also of attributes: a text that stands alone does nothing.
        for each in node.body if isinstance(node, documented) else ():
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                lines.difference_update(range(each.lineno, (each.end_lineno or 0) + 1))
    return len(lines)


def own_files(folder: Path) -> list[Path]:
    """Links, as to the components, left out."""
    linked = {path for path in folder.iterdir() if path.is_symlink()}
    return [path for path in sorted(folder.rglob("*.py")) if not linked & set(path.parents)]


def main() -> None:
    if sys.argv[1:]:
        counts = {str(p.relative_to(ROOT)): code_lines(p) for p in own_files(ROOT / sys.argv[1])}
    else:
        counts = {name: sum(map(code_lines, own_files(ROOT / name))) for name in FOLDERS}
    for name, count in (counts | {"all": sum(counts.values())}).items():
        print(f"{count:7,} {name}")


if __name__ == "__main__":
    main()

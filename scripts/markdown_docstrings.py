"""An extension of Sphinx: the reference is made from docstrings in Markdown, and is complete.

autodoc writes reStructuredText. Here each docstring is put into a directive that has MyST read it,
the parser of the pages. A field, or a name of a module, that has no docstring is described by the
comment behind it.

These are warnings, so that the build fails:

* a module, class, function, method or property of the reference without a docstring;
* a name of a module's `__all__` that the reference lacks;
* a module that a docstring of another one names in code, `like.this`, and that has no page.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import importlib.util
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from docutils import nodes, utils
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.addnodes import pending_xref
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

LOGGER = logging.getLogger(__name__)


# Docstrings --------------------------------------------------------------------------------------


class Markdown(SphinxDirective):
    """Text that MyST reads, within a text that Sphinx reads."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the nodes that the text becomes."""
        source, _ = self.get_source_info()
        document = utils.new_document(source, self.state.document.settings)
        MystParser().parse("\n".join(self.content), document)
        children: list[nodes.Node] = document.children
        return children


def as_markdown(
    _app: Sphinx, what: str, name: str, described: Any, _options: Any, lines: list[str]
) -> None:
    """Put a docstring into the directive; of a field or a value, the comment."""
    if what in ("module", "class", "exception"):
        tell_texts(described)
    if what in ("attribute", "data"):
        lines[:] = comment_of(name)  # autodoc would give the docstring of the value's type
    if any(lines):
        lines[:] = [".. markdown::", "", *(f"   {line}" for line in lines), ""]
    elif what != "attribute" or isinstance(described, property):
        LOGGER.warning("%s has no docstring", name, type="reference")


def without_arguments(
    _app: Sphinx, _what: str, _name: str, described: Any, *_rest: object
) -> tuple[str, None] | None:
    """An interface is not called."""
    return ("", None) if getattr(described, "_is_protocol", False) else None


def tell_texts(holder: type | ModuleType) -> None:
    """Have autodoc list the public values of a module, wherever they were assigned, and all fields
    of a class.
    """
    if isinstance(holder, ModuleType):
        names = [name for name in getattr(holder, "__all__", ()) if is_value(getattr(holder, name))]
        home, within = holder.__name__, ""
    else:
        names = list(inspect.get_annotations(holder))
        home, within = holder.__module__, holder.__qualname__
    if names:
        analyzer = ModuleAnalyzer.for_module(home)
        analyzer.analyze()
        for name in names:
            analyzer.attr_docs.setdefault((within, name), text_of(holder, name).splitlines())


def is_value(named: Any) -> bool:
    """Return True for no class, function or module."""
    return not inspect.isroutine(named) and not isinstance(named, type | ModuleType)


def leave_out(
    _app: Sphinx, what: str, _name: str, member: Any, _skip: bool, _options: Any
) -> bool | None:
    """Classes that are listed by themselves, where a class has them as fields."""
    return True if what == "class" and isinstance(member, type) else None


def drop_links_of_builtins(_app: Sphinx, document: nodes.document) -> None:
    """`bytes` in a signature is the type, not a field that has this name."""
    for reference in list(document.findall(pending_xref)):
        if hasattr(builtins, reference.get("reftarget", "")):
            reference.replace_self(reference.children)


# Comments ----------------------------------------------------------------------------------------


def comment_of(name: str) -> list[str]:
    """The comment of a field `module.Class.field`, or the text of a name `module.name`."""
    owner, _, own = name.rpartition(".")
    found = resolved(owner)
    for holder in inspect.getmro(found) if isinstance(found, type) else (found,):
        text = text_of(holder, own)
        if text:
            return text.splitlines()
    return []


def resolved(name: str) -> Any:
    """The module or class of this name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        owner, _, own = name.rpartition(".")
        return getattr(resolved(owner), own)


def text_of(holder: type | ModuleType, name: str) -> str:
    """Return the source's text of a name that a class or module assigns, or imports from
    another.
    """
    for node, text in statements(holder):
        match node:
            case ast.Assign(targets=[ast.Name(id=own)]) | ast.AnnAssign(target=ast.Name(id=own)):
                if own == name:
                    return text
            case ast.ImportFrom(module=str(origin), names=names, level=0):
                if any(each.name == name and each.asname in (None, name) for each in names):
                    return text_of(importlib.import_module(origin), name)
    return ""


@functools.cache
def statements(holder: type | ModuleType) -> list[tuple[ast.stmt, str]]:
    """Each statement of a class or module with the text below it or the comment behind it."""
    try:
        source = textwrap.dedent(inspect.getsource(holder))
    except (OSError, TypeError):  # it is built in
        return []
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    body = ast.parse(source).body
    if isinstance(holder, type) and isinstance(body[0], ast.ClassDef):
        body = body[0].body
    body = [each for node in body for each in unfolded(node)]
    found = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        match after:
            case ast.Expr(value=ast.Constant(value=str(text))):
                found.append((node, inspect.cleandoc(text)))
            case _:
                found.append((node, comments.get(node.end_lineno or 0, "")))
    return found


def unfolded(node: ast.stmt) -> list[ast.stmt]:
    """Yield what type checkers see as the module's own; any other statement is itself."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return node.body
    return [node]


# Completeness ------------------------------------------------------------------------------------


def warn_of_gaps(_app: Sphinx, environment: BuildEnvironment) -> None:
    """Tell what the modules of the reference offer and it does not have."""
    domain = environment.domains.python_domain
    for gap in gaps(set(domain.modules), set(domain.objects)):
        LOGGER.warning("%s", gap, type="reference")


def gaps(modules: set[str], listed: set[str]) -> Iterator[str]:
    """Return the public names that are not listed."""
    for module_name in sorted(modules):
        module = importlib.import_module(module_name)
        for named in sorted(modules_named(module)):
            if named not in modules:
                yield f"{module_name} names {named} in its docstring, and it has no page"
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            full = value.__name__ if isinstance(value, ModuleType) else f"{module_name}.{name}"
            if full not in listed:
                yield f"{full} is not in the reference"


def modules_named(module: ModuleType) -> set[str]:
    """The modules of the same package that a docstring names in code."""
    package = module.__name__.partition(".")[0]
    found = re.findall(rf"`({package}(?:\.\w+)+)`", module.__doc__ or "")
    return set(filter(is_module, found))


def is_module(name: str) -> bool:
    """Return True for a module, not a class of it, or its method."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # what stands before the last point is none
        return False


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("markdown", Markdown)
    app.connect("autodoc-process-docstring", as_markdown)
    app.connect("autodoc-process-signature", without_arguments)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("doctree-read", drop_links_of_builtins)
    app.connect("env-check-consistency", warn_of_gaps)
    return {"parallel_read_safe": True}

"""What is built and installed: wheel, source distribution, git's archive, and what is refused."""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from email.parser import BytesParser
from pathlib import Path

import pytest

from quire import __version__
from scripts.check_docs import documents
from tests.source_tree import CODE, COMPONENTS, PACKAGES, ROOT, all_sources, own_files

DISTRIBUTION = "quire-mq"
INSTALL = re.compile(r"\bpip install((?: +[^\s`)&;,#]+)*)")
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+?)(?:\[(?P<extras>[\w,-]+)\])?(?:[<>=!~;\[ ].*)?")
OTHER_FILES = ("Makefile", "constraints.txt", ".ci/run", "pyproject.toml", "setup.py")

WITHOUT_NETWORK = ("--no-build-isolation", "--no-deps", "--no-index")


@pytest.fixture(scope="module")
def source_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for this file: a build leaves folders behind that the next one would pack."""
    return copied(tmp_path_factory.mktemp("build") / "quire-source")


def copied(copy: Path) -> Path:
    """A copy of the tree to build in, with its links."""
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in (*PACKAGES, *COMPONENTS):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def build(command: list[str], folder: Path) -> None:
    """Run a build and show its output if it fails."""
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert result.returncode == 0, result.stdout + result.stderr


def wheel_of(source: Path, folder: Path) -> Path:
    """The wheel, built into the folder."""
    options = [*WITHOUT_NETWORK, "--wheel-dir", str(folder)]
    build([sys.executable, "-m", "pip", "wheel", *options, "."], source)
    (wheel,) = folder.glob(f"quire_mq-{__version__}-py3-none-any.whl")
    return wheel


def sdist_of(source: Path, folder: Path) -> Path:
    """The source distribution, built into the folder."""
    script = "import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1])"
    build([sys.executable, "-c", script, str(folder)], source)
    (sdist,) = folder.glob("quire_mq-*.tar.gz")
    return sdist


def archive_of(_source: Path, folder: Path) -> Path:
    """What git makes of the last commit, unpacked."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    archive, unpacked = folder / "quire.tar", folder / "unpacked"
    build(["git", "archive", "--output", str(archive), "HEAD"], ROOT)
    build([sys.executable, "-m", "tarfile", "-e", str(archive), str(unpacked)], folder)
    return unpacked


def expected_files() -> set[str]:
    """What a distribution must hold: all modules, the py.typed files, and the alert rules."""
    typed = {f"{package}/py.typed" for package in PACKAGES}
    typed |= {f"quire/{component}/py.typed" for component in COMPONENTS}
    return {path.as_posix() for path in all_sources()} | typed | {"quire/metrics/alerts.yml"}


@pytest.mark.cases(6)
def test_wheel_holds_the_modules_of_the_tree(source_copy: Path, tmp_path: Path) -> None:
    """The wheel, one for all machines, has real copies of exactly the modules of the links."""
    with zipfile.ZipFile(wheel_of(source_copy, tmp_path)) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
        stem = f"{DISTRIBUTION.replace('-', '_')}-{__version__}.dist-info"
        metadata = BytesParser().parsebytes(archive.read(f"{stem}/METADATA"))
    assert files == expected_files()
    assert (metadata["Name"], metadata["Version"]) == (DISTRIBUTION, __version__)


def texts_of(path: Path) -> Iterator[str]:
    """The file's text; of Python its string constants, joined as the program joins them."""
    text = path.read_text()
    if "install" not in text and "quire[" not in text:
        return
    if path.suffix != ".py":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@functools.cache
def project() -> tuple[dict[str, set[str]], set[str]]:
    """The extras that may be asked for, by distribution, and all distributions that are needed."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    table = settings["project"]
    extras = table["optional-dependencies"]
    needed = [*table["dependencies"], *settings["build-system"]["requires"], "pip"]
    needed += [each for group in extras.values() for each in group]
    return {table["name"]: set(extras)}, {requirement_of(each)[0] for each in needed}


def requirement_of(text: str) -> tuple[str, set[str]]:
    """The name of a requirement, in small letters, and its extras."""
    found = REQUIREMENT.fullmatch(text.strip("'\""))
    assert found is not None, text
    return found["name"].lower(), set((found["extras"] or "").split(",")) - {""}


def foreign_installs(text: str) -> list[str]:
    """Commands of a text that would install something else than it means."""
    own, needed = project()
    wrong = []
    for command in INSTALL.finditer(text):
        words = iter(command[1].split())
        for word in words:
            if word in ("-c", "-r", "--constraint", "--requirement"):
                next(words)
            elif not word.strip("'\"").startswith(("-", ".", "/")):
                name, extras = requirement_of(word)
                if not extras <= own[name] if name in own else name not in needed:
                    wrong.append(command[0])
    return wrong + re.findall(r"(?<![\w.-])quire\[[a-z][^\]\n]*\]", text)


def test_every_command_that_installs_names_this_distribution() -> None:
    """In messages, docstrings and documents: an extra that is there, or a package of this list."""
    modules = [path for folder in CODE for path in own_files(folder)]
    files = [*modules, *documents(ROOT), *(ROOT / name for name in OTHER_FILES)]
    found = {
        str(path): wrong
        for path in files
        for text in texts_of(ROOT / path)
        if (wrong := foreign_installs(text))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pip install quire", ["pip install quire"]),
        ("(pip install 'quire[msgpack]')", ["pip install 'quire[msgpack]'", "quire[msgpack]"]),
        ("the extra `quire[spark]`", ["quire[spark]"]),
        ("`pip install -c constraints.txt quire-mq quire`", None),
        ("pip install 'quire-mq[sparks]'", ["pip install 'quire-mq[sparks]'"]),
        ("pip install message-queue", ["pip install message-queue"]),
        ("pip install 'quire-mq[spark,coordination]' && quire --help", []),
        ("`pip install fastapi uvicorn`, `pip install -c constraints.txt '.[spark]'`", []),
        ("what `pip install` does; quire_queues[0]", []),
    ],
)
def test_a_command_that_installs_something_else_is_found(
    text: str, wrong: list[str] | None
) -> None:
    """Another project's name, an extra that is not there, a package that nothing here needs."""
    found = foreign_installs(text)
    assert (len(found) == 1) if wrong is None else found == wrong


@pytest.mark.long
def test_sdist_holds_the_modules_of_the_tree(source_copy: Path, tmp_path: Path) -> None:
    """The source distribution has real copies below quire/, so that it needs no links."""
    with tarfile.open(sdist_of(source_copy, tmp_path)) as archive:
        files = {member.name.split("/", 1)[-1] for member in archive if member.isfile()}
    assert expected_files() <= files


# A new user's first lines, away from the tree.
FIRST_LINES = """
import pathlib, sys
import quire, quire.spark_graphs.limits, pyspark_quire
assert pathlib.Path(quire.__file__).is_relative_to(sys.argv[1]), quire.__file__
with quire.open(sys.argv[2]) as store:
    store.create_queue("orders")
    store.put("orders", b"2 apples")
    print(store.get("orders").payload.decode())
"""


@pytest.mark.long
@pytest.mark.parametrize("form", [wheel_of, sdist_of, archive_of])
def test_it_is_installed_from(
    form: Callable[[Path, Path], Path], source_copy: Path, tmp_path: Path
) -> None:
    """Each of the three, by pip and without a network; a store is made with what was installed."""
    site, store = tmp_path / "site", tmp_path / "shop.quire"
    source = form(source_copy, tmp_path)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *WITHOUT_NETWORK]
    build([*pip, "--target", str(site), str(source)], tmp_path)
    first = subprocess.run(
        [sys.executable, "-c", FIRST_LINES, str(site), str(store)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (first.stdout, first.returncode) == ("2 apples\n", 0), first.stderr


def test_a_checkout_without_links_is_not_built(tmp_path: Path) -> None:
    """Texts stand in their places, as git and zip files leave them: it says so, and what to do."""
    copy = copied(tmp_path / "quire-source")
    for component in COMPONENTS:
        link = copy / "quire" / component
        words = os.readlink(link)
        link.unlink()
        link.write_text(words)
    tried = subprocess.run(
        [sys.executable, "setup.py", "--version"], cwd=copy, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert tried.returncode == 1
    assert f"quire cannot be built: {', '.join(COMPONENTS)} in the folder quire" in tried.stderr
    assert "core.symlinks true" in tried.stderr


@pytest.mark.cases(3)
def test_a_checkout_that_has_lost_one_link_is_not_built(tmp_path: Path) -> None:
    """pip fails with it, and makes no wheel."""
    copy = copied(tmp_path / "quire-source")
    (copy / "quire" / "engine").unlink()
    options = [*WITHOUT_NETWORK, "--wheel-dir", str(tmp_path)]
    tried = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "."],
        cwd=copy, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tried.returncode == 1
    assert "quire cannot be built: engine in the folder quire" in tried.stdout + tried.stderr
    assert list(tmp_path.glob("*.whl")) == []

"""What is loaded when: libraries when they are used, and public names when they are asked for."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import threading
import types
import typing
from pathlib import Path

import pytest

import quire
from quire.libraries import is_arrow, late_modules, lazily_loaded
from quire.messages.message import MESSAGE_COLUMNS
from tests.source_tree import ROOT

LIBRARIES = frozenset(
    {"numpy", "pyarrow", "sortedcontainers", "cronsim", "lark", "msgspec", "greenlet"}
)
EXTRAS = frozenset(
    {"pyspark", "py4j", "pandas", "matplotlib", "transaction", "psycopg", "prometheus_client"}
)
PUBLIC: list[str] = vars(quire)["__all__"]  # which type checkers have no need of
PARTS = frozenset({"quire.engine", "quire.remote", "quire.spark_graphs", "quire.coordination"})

SMALL = """
import quire
with quire.open({path!r}) as store:
    store.create_queue("jobs", exist_ok=True)
    store.put("jobs", b"one")
    with store.transaction() as txn:
        txn.put("jobs", b"two", sender="me", attributes={{"a": "b"}})
        print(txn.get("jobs").payload)
    assert store.get_many("jobs", 9)
    with store.consume("jobs", timeout=0) as messages:
        assert list(messages) == []
    assert store.queue("jobs").messages == 0
"""

ONE_BY_ONE = """
import quire
with quire.open({path!r}) as store:
    store.create_queue("jobs", exist_ok=True)
    store.put("jobs", b"one")
    with store.transaction() as txn:
        txn.put("jobs", b"two", sender="me", attributes={{"a": "b"}})
    assert store.get("jobs").payload == b"one"
    store.admin.checkpoint()
with quire.open({path!r}) as store:
    assert store.get("jobs").payload == b"two"
    store.admin.checkpoint()
"""

# Commands that need little, one after another, and what none of them loads.
COMMANDS = """
import sys
sys.modules["typing_extensions"] = None  # which msgspec loads where it is, and that loads `inspect`
from quire.cli import main
for words in {lines}:
    assert main([words[0], {path!r}, *words[1:]]) == 0, words
    assert not [name for name in {dear} if name in sys.modules], words
"""
LINES = (
    ("create-queue", "jobs"),
    ("create-queue", "news", "--kind", "topic"),
    ("subscribe", "news", "audit"),
    ("put", "news", "one"),
    ("put", "jobs", "one"),
    ("put", "jobs", "two", "--sender", "me", "--attribute", "a=b"),
    ("queues",),
    ("status",),
    ("transactions",),
    ("schedules",),
    ("catalog",),
    ("scheduled", "jobs"),
    ("get", "jobs"),
    ("get", "news/audit"),
    ("checkpoint",),
    ("unsubscribe", "news", "audit"),
    ("purge", "jobs"),
    ("drop-queue", "news"),
)
ALWAYS_DEAR = ("numpy", "pyarrow", "lark", "cronsim", "quire.selectors.condition")
# What one that puts or gets, alone, has no need of: another's side of a connection, what few queues
# and few programs have, and what is dear of the standard library.
FEATURES = (
    "quire.remote.client.joining",
    "quire.remote.client.joined_store",
    "quire.remote.ownership.succession",
    "quire.remote.server.served_client",
    "quire.remote.wire.protocol",
    "quire.engine.namespaces.admin",
    "quire.engine.inspection.verify",
    "quire.engine.transactions.streaming",
    "quire.engine.upkeep.redriving",
    "quire.interface.consumer",
    "quire.interface.listening",
    "quire.interface.redriving",
    "quire.interface.sessions.session",
    "quire.cli.error_hints",
    "bz2",
    "shutil",
)
MOST_MODULES = (
    289  # of Quire, of some 530; each takes a sixth of a millisecond, however small it is
)
# Of Python's own library, what takes long to load or to make classes with, and few commands need.
STANDARD_DEAR = (
    "_hashlib", "ast", "ctypes", "dataclasses", "difflib", "dis", "inspect", "pickle", "shlex"
)  # fmt: skip
OWNERS = ("sortedcontainers", "quire.engine.store", "quire.remote.server.store_server")


def loaded_by(script: str) -> set[str]:
    """The modules that a new interpreter has after the lines."""
    told = "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    child = subprocess.run(
        [sys.executable, "-c", script + told], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(json.loads(child.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def standard_dear() -> set[str]:
    """Those that what Quire needs does not load by itself, in this Python."""
    needed = (
        "import sys; sys.modules['typing_extensions'] = None\n"
        "import argparse, json, logging, msgspec, socket, sortedcontainers, xxhash\n"
        "argparse.ArgumentParser().add_argument('one')"
    )
    return set(STANDARD_DEAR) - loaded_by(needed)


def test_importing_quire_loads_almost_nothing() -> None:
    """No library, nothing that only extras bring, and none of Quire's own parts."""
    loaded = loaded_by("import quire")
    assert loaded & (LIBRARIES | EXTRAS | PARTS) == set()
    assert {name for name in loaded if name.startswith("quire.")} == set()


def test_what_a_program_begins_with_loads_no_library() -> None:
    """All that is public but for the schemas, before a store is opened; values are of msgspec."""
    names = set(PUBLIC) - {"MESSAGE_SCHEMA", "HEADER_SCHEMA"}
    script = "import quire\n" + "\n".join(f"quire.{name}" for name in sorted(names))
    assert loaded_by(script) & (LIBRARIES | EXTRAS | PARTS) == {"msgspec"}


def test_simulated_machines_need_no_pytest() -> None:
    """Who asks for the fixtures has it; nobody else's interpreter loads it for `quire.testing`."""
    assert "pytest" not in loaded_by("import quire.testing")


def test_the_command_line_begins_without_libraries(standard_dear: set[str]) -> None:
    """Help, and whatever is read of a line before its command runs."""
    script = "from quire.cli.command_line import NAMES, parser_of\nlist(map(parser_of, NAMES))"
    assert loaded_by(script) & (LIBRARIES | EXTRAS | PARTS | standard_dear) == set()


def test_a_store_of_single_messages_never_loads_numpy(tmp_path: Path) -> None:
    """Made, used, noted in a checkpoint, and opened again with messages in it."""
    loaded = loaded_by(ONE_BY_ONE.format(path=str(tmp_path / "small.quire")))
    assert loaded & set(ALWAYS_DEAR) == set()


def test_commands_load_what_they_need_alone(tmp_path: Path, standard_dear: set[str]) -> None:
    """Without another owner they own the store, or look at its files: that needs no NumPy.

    Nor does it need what makes classes slowly: values are msgspec's.
    """
    path = str(tmp_path / "small.quire")
    dear = (*ALWAYS_DEAR, *standard_dear)
    loaded = loaded_by(COMMANDS.format(lines=LINES, path=path, dear=dear))
    assert "quire.engine.store" in loaded


@pytest.mark.parametrize("words", [("put", "one"), ("get",)])
def test_a_command_that_owns_the_store_loads_no_more(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """Than what opens a store and moves one message: features come with their first use."""
    path = str(tmp_path / "small.quire")
    with quire.open(path) as store:
        store.create_queue("jobs")
        store.put("jobs", b"one")
    line = [words[0], path, "jobs", *words[1:]]
    loaded = loaded_by(f"from quire.cli import main\nassert main({line}) == 0")
    assert "quire.engine.store" in loaded
    assert loaded & {*ALWAYS_DEAR, *FEATURES} == set()
    assert len([name for name in loaded if name.startswith("quire.")]) <= MOST_MODULES


def test_an_owner_that_stays_loads_the_rest(tmp_path: Path) -> None:
    """No client of it waits for an import, and no other release is mixed in."""
    path = str(tmp_path / "small.quire")
    loaded = loaded_by(
        f"import quire, sys, time\nwith quire.open({path!r}):\n"
        "    assert 'quire.remote.server.served_client' not in sys.modules\n"
        "    while 'quire.rows.row_part' not in sys.modules:\n"
        "        time.sleep(0.05)"
    )
    assert {"quire.remote.server.served_client", "quire.engine.namespaces.admin"} <= loaded
    assert "numpy" not in loaded


def test_commands_that_ask_an_owner_need_no_engine(tmp_path: Path, standard_dear: set[str]) -> None:
    """Nor the server, nor whatever else only an owner uses."""
    path = str(tmp_path / "small.quire")
    with quire.open(path):
        dear = (*ALWAYS_DEAR, *standard_dear, *OWNERS)
        loaded_by(COMMANDS.format(lines=LINES, path=path, dear=dear))


def test_who_stays_joined_has_the_engine_before_it_owns(tmp_path: Path) -> None:
    """It is not loaded at the hand-over only, when another release may be installed."""
    path = str(tmp_path / "small.quire")
    with quire.open(path):
        loaded = loaded_by(
            f"import quire, sys, time\nwith quire.open({path!r}) as store:\n"
            "    assert 'quire.engine.store' not in sys.modules\n"
            "    while 'quire.remote.ownership.shared_store' not in sys.modules:\n"
            "        time.sleep(0.05)"
        )
    assert "quire.engine.store" in loaded


def test_a_store_of_small_messages_never_loads_pyarrow(tmp_path: Path) -> None:
    """Made, used, and opened again with messages in it."""
    path = str(tmp_path / "small.quire")
    assert loaded_by(SMALL.format(path=path)) & ({"pyarrow", "lark", "cronsim"} | EXTRAS) == set()
    again = loaded_by(SMALL.format(path=path) + f"\nwith quire.open({path!r}): pass")
    assert again & ({"pyarrow", "lark", "cronsim"} | EXTRAS) == set()


def test_a_program_that_has_joined_never_loads_pyarrow(tmp_path: Path) -> None:
    """It puts and gets small messages over its owner's socket."""
    path = str(tmp_path / "small.quire")
    with quire.open(path):
        loaded = loaded_by(SMALL.format(path=path))
    assert loaded & ({"pyarrow", "lark", "cronsim", "greenlet"} | EXTRAS) == set()
    assert "quire.remote" in loaded


def test_greenlets_are_loaded_for_a_joined_store_of_asyncio_alone(tmp_path: Path) -> None:
    """Who owns the store, or has just imported `quire.aio`, has no need of them."""
    path = str(tmp_path / "small.quire")
    lines = (
        "import asyncio, quire.aio\n"
        "async def main():\n"
        f"    async with quire.aio.open({path!r}) as store:\n"
        "        print(store.role)\n"
        "asyncio.run(main())"
    )
    own = {"greenlet", "quire.aio.greenlet_calls"}
    assert not loaded_by(lines) & own
    with quire.open(path):
        assert own <= loaded_by(lines)


# Public names ------------------------------------------------------------------------------------


def seen_by_type_checkers() -> dict[str, str]:
    """Each public name of `quire`, and its module."""
    tree = ast.parse((ROOT / "quire" / "__init__.py").read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    (block,) = [each for each in blocks if ast.unparse(each.test) == "TYPE_CHECKING"]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {each.name: str(node.module) for node in imports for each in node.names}


def test_public_names_are_where_type_checkers_see_them() -> None:
    """The two lists of `quire/__init__.py` say the same."""
    places = dict.fromkeys(vars(quire)["_MODULES"], "quire") | vars(quire)["_PLACE"]
    assert places == seen_by_type_checkers()
    assert sorted([*places, "__version__"]) == PUBLIC


def test_public_names_are_given_to_whoever_asks() -> None:
    """`from quire import *`, dir, and one by one; any other name is an AttributeError."""
    assert set(PUBLIC) < set(dir(quire))
    assert {"aio", "databases", "testing"} < set(dir(quire))
    assert "TYPE_CHECKING" not in dir(quire)
    given: dict[str, object] = {}
    exec("from quire import *", given)
    for name in PUBLIC:
        assert given[name] is getattr(quire, name)
    with pytest.raises(AttributeError, match="module 'quire' has no attribute 'opne'"):
        _ = vars(quire)["__getattr__"]("opne")
    for further in ("aio", "databases"):
        with pytest.raises(AttributeError, match=f"import quire.{further} first"):
            _ = vars(quire)["__getattr__"](further)


def test_annotations_of_public_classes_can_be_read() -> None:
    """What they name of PyArrow is found, though nothing was loaded for them."""
    hints = typing.get_type_hints(quire.Transaction.get_arrow)
    assert hints["return"].__name__ == "RecordBatch"
    for owner in (quire.Store, quire.Transaction):
        given = typing.get_args(typing.get_type_hints(owner.put_many)["payloads"])
        assert {"Array", "ChunkedArray", "RecordBatch", "Table"} < {t.__name__ for t in given}


# Late modules ------------------------------------------------------------------------------------


def test_a_late_module_is_one_of_its_package() -> None:
    """`from package import module` gives a stand-in, or the module where that is loaded already."""
    lines = (
        "import sys\nfrom quire.interface import redriving\n"
        "assert 'quire.interface.redriving' not in sys.modules\n"
        "first = redriving.redrive\n"
        "import quire.interface.redriving as real\n"
        "from quire.interface import redriving as again\n"
        "assert again is real and first is real.redrive is redriving.redrive\n"
        "assert not hasattr(redriving, 'no_such_name')\n"
        "import quire.interface\n"
        "assert not hasattr(quire.interface, 'no_such_module')\n"
    )
    assert "quire.interface.redriving" in loaded_by(lines)


# Libraries ---------------------------------------------------------------------------------------


def test_a_library_is_loaded_by_the_first_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, whichever threads ask; further ones go past it, and what comes later is found."""
    library = types.ModuleType("library")
    vars(library).update(answer=42, __getattr__=lambda name: f"late {name}")
    asked: list[str] = []

    def load(name: str) -> types.ModuleType:
        asked.append(name)
        return library

    monkeypatch.setattr(late_modules, "load", load)
    lazy = late_modules.stand_in("library")
    assert asked == []
    threads = [threading.Thread(target=lambda: lazy.answer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(asked) == {"library"}
    asked.clear()
    assert (lazy.answer, lazy.further) == (42, "late further")
    vars(library)["more"] = 1
    assert (lazy.more, asked) == (1, [])


def test_nothing_is_of_pyarrow_before_it_is_imported() -> None:
    """The question loads nothing."""
    assert not is_arrow([b"one"])
    lines = "from quire.libraries import is_arrow\nassert not is_arrow([b'one'])"
    assert "pyarrow" not in loaded_by(lines)
    assert is_arrow(lazily_loaded.pa.array([1]))


def test_the_schema_has_the_columns_that_are_told() -> None:
    """Who needs their names only does not load PyArrow for it."""
    assert tuple(quire.MESSAGE_SCHEMA.names) == MESSAGE_COLUMNS

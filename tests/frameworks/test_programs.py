"""The programs of docs/frameworks.md that no web server runs."""

from __future__ import annotations

import configparser
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import quire
from quire.cli.command import ExitStatus
from quire.cli.command_line import read_line
from tests.frameworks.recipe_files import (
    NAMED,
    TEXT,
    blocks,
    environment,
    section,
    write_files,
)
from tests.kit.waiting import SECONDS, eventually
from tests.source_tree import ROOT


def run(folder: Path, *arguments: str, **variables: str) -> str:
    """What a Python process there prints, all of it; it succeeds."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env=environment(folder) | variables,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_program_of_the_page_is_run() -> None:
    """Tests write those with a file's name, section by section, and take these others."""
    others = [*blocks("Jupyter"), blocks("Flask behind gunicorn")[-1]]
    assert TEXT.count("```python") == len(NAMED.findall(TEXT)) + len(others)


def test_the_unit_of_systemd() -> None:
    """The command line has its command, and ends with the status that the page says."""
    text = re.search(r"```ini\n(.*?)```", section("systemd"), re.DOTALL)
    assert text is not None
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text[1])
    program, *line = unit["Service"]["ExecStart"].split()
    assert (Path(program).name, unit["Service"]["Type"]) == ("quire", "notify")
    assert read_line(line).command == "serve"
    assert f"RestartPreventExitStatus={ExitStatus.OWNED}" in section("systemd")
    assert not read_line([*line, "--no-wait"]).wait


@pytest.mark.cases(3)
def test_tasks(tmp_path: Path) -> None:
    """Their results are found by their numbers; a request id has a task done once."""
    write_files("Tasks, as with Celery", tmp_path)
    assert run(tmp_path, "main.py") == "b'5'\nb'9'\n"
    with quire.open(str(tmp_path / "shop.quire"), create=False) as store:
        assert store.states.items("results") is not None
        assert store.queue("tasks").messages == 0


@pytest.mark.cases(3)
def test_a_command_of_cron(tmp_path: Path) -> None:
    """It handles what is there and ends; what another program has put since, the next time."""
    write_files("cron", tmp_path)
    assert run(tmp_path, "drain.py") == ""
    with quire.open(str(tmp_path / "shop.quire")) as store:
        store.put_many("orders", [b"apples", b"pears"])
        assert run(tmp_path, "drain.py") == "handles b'apples'\nhandles b'pears'\n"
        assert store.queue("orders").messages == 0


@pytest.mark.cases(3)
def test_fixtures_for_pytest(tmp_path: Path) -> None:
    """A test of a program takes a store in memory, or one on a disk, also over a restart."""
    assert write_files("pytest", tmp_path) == ["conftest.py", "test_shop.py"]
    (tmp_path / "test_more.py").write_text(
        "def test_on_a_disk(quire_disk_store, quire_path):\n"
        "    assert quire_disk_store.path == quire_path\n"
        "    assert quire_disk_store.queues() == []\n"
    )
    said = run(tmp_path, "-m", "pytest", "-W", "error", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert "3 passed" in said


DJANGO = """
from pathlib import Path

BASE_DIR = Path(__file__).parent
SECRET_KEY = "of this test"
ALLOWED_HOSTS = ["testserver"]
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}
QUIRE_STORE = str(BASE_DIR / "shop.quire")
"""
URLS = """
from django.urls import path
from shop.views import order

urlpatterns = [path("orders", order)]
"""
REQUESTS = """
import django

django.setup()
from django.core.management import call_command
from django.test import Client

call_command("migrate", verbosity=0)
client = Client(raise_request_exception=False)
for text in (b"apples", b"rotten", b"pears"):
    print(client.post("/orders", text, content_type="text/plain").status_code)
"""


@pytest.mark.long
def test_django(tmp_path: Path) -> None:
    """What a view has committed is moved and handled; of a view that fails there is nothing."""
    assert len(write_files("Django", tmp_path)) == 3
    for folder in ("shop", "shop/migrations", "shop/management", "shop/management/commands"):
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "settings.py").write_text(DJANGO)
    (tmp_path / "urls.py").write_text(URLS)
    settings = {"DJANGO_SETTINGS_MODULE": "settings"}
    said = run(tmp_path, "-W", "error", "-c", REQUESTS, **settings).splitlines()
    assert [line for line in said if line.isdigit()] == ["202", "500", "202"]
    with (tmp_path / "log").open("wb") as log:
        relay = subprocess.Popen(
            [sys.executable, "-m", "django", "relay"],
            cwd=tmp_path, stdout=log, stderr=log,
            env=environment(tmp_path) | settings | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        )  # fmt: skip
        try:
            eventually(
                lambda: "pears" in (tmp_path / "log").read_text() or relay.poll() is not None
            )
            relay.send_signal(signal.SIGTERM)
            assert relay.wait(SECONDS) == 0, (tmp_path / "log").read_text()
        finally:
            relay.kill()
            relay.wait()
    assert (tmp_path / "log").read_text() == "handles b'apples'\nhandles b'pears'\n"


NOTEBOOK = """
import asyncio
import json
import sys

import nbformat
from nbclient import NotebookClient


async def main():
    notebook = nbformat.v4.new_notebook()
    client = NotebookClient(notebook, timeout=300, kernel_name="python3")
    shown = []
    async with client.async_setup_kernel():
        for number, source in enumerate(json.loads(sys.argv[1])):
            if source == "restart":
                await client.km.restart_kernel(now=True)
                await client.kc.wait_for_ready(300)
                continue
            cell = nbformat.v4.new_code_cell(source)
            notebook.cells.append(cell)
            await client.async_execute_cell(cell, len(notebook.cells) - 1)
            shown.append(cell.outputs[-1]["data"]["text/plain"])
    print("\\n" + json.dumps(shown))


asyncio.run(main())
"""


@pytest.mark.long
def test_a_notebook(tmp_path: Path) -> None:
    """The cell that opens the store is run again, and again after the kernel was killed.

    Queues and messages are shown as tables, and the store is used from the notebook's event loop.
    """
    opening, tables, awaiting = blocks("Jupyter")
    queues, messages = [line for line in tables.splitlines() if line.endswith(("]", ")"))]
    queues = f"import msgspec, pandas\n{queues}"
    cells = [opening, opening, queues, messages, awaiting, "restart", opening]
    said = run(tmp_path, "-c", NOTEBOOK, json.dumps(cells))
    shown: list[str] = json.loads(said.splitlines()[-1])
    assert shown[:2] == ["1", "2"]
    assert shown[2].splitlines()[1].split()[:3] == ["0", "orders", "2"]
    assert shown[3].count("3 apples") == 2
    assert shown[4:] == ["3", "4"]

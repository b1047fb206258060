"""The page on other machines: its commands, and its program, do what it says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kit.printed_pages import PrintedPage, stop


def test_a_server_and_a_client_work_as_printed(tmp_path: Path) -> None:
    """Certificates, the server, and the program of a client, one after another."""
    with PrintedPage("network.md", tmp_path) as page:
        server = page.serve()
        printed = re.search(r"It prints `([^`]*)`", page.text)
        assert printed is not None
        assert page.run_program().strip() == printed[1]
        stop(server)

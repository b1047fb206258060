"""The page on users: its commands, and its program, do what it says."""

from __future__ import annotations

from pathlib import Path

from tests.kit.printed_pages import PrintedPage, stop


def test_two_users_in_five_minutes(tmp_path: Path) -> None:
    """The certificate, the users, the server, and a user's program, one after another."""
    with PrintedPage("security.md", tmp_path) as page:
        server = page.serve()
        assert page.run_program() == page.blocks("text")[0]
        stop(server)

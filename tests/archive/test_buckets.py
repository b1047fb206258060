"""Objects in an object store: its suite, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from quire.archive.objects import buckets, open_objects
from quire.env import OsEnv
from quire.errors import ArchiveFailed
from quire.libraries.late_modules import stand_in
from tests.source_tree import ROOT

SUITE = "tests/archive/bucket_suite.py"


@pytest.mark.cases(6)
def test_the_suite_of_object_stores() -> None:
    """It passes; what needs a server of S3 is left out without one, and says so.

    The second server is for `make check-archive`.
    """
    if find_spec("obstore") is None:  # which must not be loaded here
        pytest.skip("needs the extra `archive`")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", SUITE]
    suite = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert suite.returncode == 0, suite.stdout + suite.stderr
    left_out = [
        line
        for line in suite.stdout.splitlines()
        if line.startswith("SKIPPED") and "versitygw" not in line
    ]
    if left_out:
        pytest.skip(f"passed, but for: {left_out[0]}")


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gives the URL of an object store without the extra is told what to install."""
    monkeypatch.setattr(buckets, "obstore", stand_in("obstore_that_nobody_has"))
    with pytest.raises(ArchiveFailed, match=r"pip install 'quire-mq\[archive\]'"):
        open_objects("s3://bucket/store", OsEnv())

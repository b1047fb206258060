"""Objects in an object store: the contract over a server of S3, and answers by a script.

It runs in a process of its own (tests/archive/test_buckets.py): the library of object stores has
threads, and does not work in processes that are forked later.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import pytest

import quire
from quire.archive import backup, backups, merging, restore, verify
from quire.archive.entry_reading import heads, records
from quire.archive.limits import MAX_TRIES, TRANSFER_BYTES
from quire.archive.object_reading import reading
from quire.archive.objects import Objects, buckets, create_own, open_objects, probe
from quire.archive.objects.buckets import BucketObjects
from quire.archive.shipper import Shipper
from quire.env import OsEnv
from quire.errors import ArchiveFailed, ArchiveRefused, InvalidArgument, ObjectNotFound
from quire.testing import SimEnv
from tests.archive.scripted_server import CUT, HANG, RESET, STALL, ScriptedServer, part
from tests.archive.test_objects import TestContract

__all__ = ["TestContract"]

SECRET = "a-very-secret-key"
STARTED_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials and a region, as an environment has them; plain HTTP is allowed."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.delenv("AWS_PROFILE", raising=False)


class S3Server(NamedTuple):
    """A server of S3 that this run has started."""

    url: str
    make_bucket: Callable[[str], object]


@contextmanager
def started(command: list[str], port: int) -> Iterator[str]:
    """A server on a port of this machine, for the length of a block; its URL."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + STARTED_SECONDS
        while time.monotonic() < deadline:
            with socket.socket() as connection:
                if connection.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STARTED_SECONDS)


def program(variable: str, name: str, advice: str) -> str:
    """The path of a server's program; the environment may name another one."""
    found = shutil.which(os.environ.get(variable, name))
    if found is None:
        pytest.skip(f"needs {name}: {advice}, and set {variable} (`make check-archive` does)")
    return found


@pytest.fixture(scope="session", params=["moto", "versitygw"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[S3Server]:
    """One of two servers: a mock, and one that keeps its objects in a directory."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    if request.param == "moto":
        moto = program("MOTO_SERVER", "moto_server", "install moto[server] elsewhere")
        with started([moto, "-H", "127.0.0.1", "-p", str(port)], port) as url:

            def put_bucket(name: str) -> None:
                urlopen(Request(f"{url}/{name}", method="PUT")).close()

            yield S3Server(url, put_bucket)
        return
    gateway = program("VERSITYGW", "versitygw", "build it of its Go module")
    root = tmp_path_factory.mktemp("buckets")
    command = [gateway, "--access", "key", "--secret", SECRET, "--port", f"127.0.0.1:{port}"]
    with started([*command, "posix", str(root)], port) as url:
        yield S3Server(url, lambda name: (root / name).mkdir())


@pytest.fixture
def objects(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Objects:
    """Objects in a bucket of this test's own."""
    bucket = f"bucket-{OsEnv().random_u64():016x}"
    server.make_bucket(bucket)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    return open_objects(f"s3://{bucket}/archives/store", OsEnv())


class TestServer:
    def test_it_makes_an_object_once(self, objects: Objects) -> None:
        """[AO2] The probe passes, leaves nothing, and own bytes are found."""
        probe(objects, OsEnv())
        assert list(objects.list()) == []
        create_own(objects, "log/1", b"own")
        create_own(objects, "log/1", b"own")
        with pytest.raises(ArchiveRefused, match="log/1"):
            create_own(objects, "log/1", b"foreign")

    def test_an_error_of_pieces_is_theirs(self, objects: Objects) -> None:
        """[AO1] Also in the midst of a large upload, which leaves nothing."""

        def pieces() -> Iterator[bytes]:
            yield bytes(3 * TRANSFER_BYTES)
            raise FileNotFoundError("the source is gone")

        with pytest.raises(FileNotFoundError, match="the source is gone"):
            objects.upload("packs/1", pieces())
        assert list(objects.list()) == []

    def test_entries_are_shipped_merged_and_read_back(
        self, objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """[LG1, ME1, SH1] With many reads at a time; each record is there, once, in order."""
        with quire.open(tmp_path / "store", share=False) as store, reading(objects) as read:
            store.create_queue("q")
            store.admin.set_archive(objects.url)
            shipper = Shipper(store, objects, OsEnv(), read)
            for number in range(8):
                store.put("q", bytes(5_000_000 if number == 3 else 100))
                while not shipper.step():
                    pass
                assert not shipper.error
            monkeypatch.setattr(merging, "MERGED_SECONDS", -1.0)
            shipper.step()
            names = [info.name for info in objects.list()]
            assert any(name.startswith("merged/") for name in names)
            assert any(name.startswith("blobs/") for name in names)
            numbers = [record.number for record in records(read, heads(objects, read))]
            end = store.integration.ship().end_number
            assert numbers == list(range(end - 7, end + 1))
            shipper.close()

    def test_a_store_is_backed_up_and_restored(self, objects: Objects, tmp_path: Path) -> None:
        """What was in the store is in the restored one, also what went up in several parts."""
        payload = OsEnv().random_u64().to_bytes(8, "little") * (2 * TRANSFER_BYTES // 8 + 1)
        with quire.open(str(tmp_path / "store"), share=False) as store:
            store.create_queue("q")
            store.put_many("q", [b"%d" % number for number in range(1000)])
            store.put("q", payload)
            for _ in range(2):
                backup(store, objects.url)
        assert len(backups(objects.url)) == 2
        assert verify(objects.url).ok
        restore(objects.url, str(tmp_path / "restored"))
        with quire.open(str(tmp_path / "restored"), share=False) as restored:
            found = [bytes(message.payload) for message in restored.browse("q", 2000)]
        assert found == [*(b"%d" % number for number in range(1000)), payload]

    def test_a_missing_bucket_is_named(self, objects: Objects) -> None:
        """Nothing is found missing there: it is an error, at once, and says what to do."""
        elsewhere = open_objects("s3://no-bucket/archives/store", SimEnv())
        calls: tuple[Callable[[], object], ...] = (
            lambda: elsewhere.create("a", b"x"),
            lambda: elsewhere.upload("a", [bytes(TRANSFER_BYTES + 1)]),
            lambda: elsewhere.read("a"),
            lambda: list(elsewhere.list()),
        )
        for call in calls:
            with pytest.raises(ArchiveFailed, match=r"404 NoSuchBucket.*make the bucket"):
                call()


@pytest.fixture
def scripted(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., ScriptedServer]]:
    """A function that starts a server with a script, to which `s3:` leads then."""
    servers: list[ScriptedServer] = []

    def start(*answers: str | tuple[str, bytes]) -> ScriptedServer:
        servers.append(ScriptedServer(answers))
        monkeypatch.setenv("AWS_ENDPOINT_URL", servers[-1].url)
        return servers[-1]

    yield start
    for server in servers:
        server.close()


Start = Callable[..., ScriptedServer]
URL = "s3://bucket/store"


def code(status: str, name: str) -> tuple[str, bytes]:
    """A status with a code of S3."""
    return status, f"<Error><Code>{name}</Code><Key>{SECRET}</Key></Error>".encode()


def page(*names: str, token: str = "") -> tuple[str, bytes]:
    """A page of a listing of S3; a token says that there are more."""
    entries = "".join(
        f"<Contents><Key>store/{name}</Key><Size>1</Size>"
        "<LastModified>2026-11-28T19:40:27.000Z</LastModified></Contents>"
        for name in names
    )
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    body = f"<ListBucketResult><IsTruncated>{str(bool(token)).lower()}</IsTruncated>{entries}{more}"
    return "200 OK", f"{body}</ListBucketResult>".encode()


class TestFailures:
    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (code("503 Slow Down", "SlowDown"), "503 SlowDown"),
            ("429 Too Many Requests", "429"),
            ("500 Internal Server Error", "500"),
            (code("400 Bad Request", "RequestTimeout"), "400 RequestTimeout"),
            (RESET, "a broken connection"),
        ],
    )
    def test_what_may_pass_is_repeated(
        self, scripted: Start, answer: str | tuple[str, bytes], words: str
    ) -> None:
        """[BU1] Twice so, then well; and when it never passes the error says what it was."""
        server = scripted(answer, answer, "200 OK")
        assert open_objects(URL, SimEnv()).create("a", b"own")
        assert server.requests == ["PUT /bucket/store/a HTTP/1.1"] * 3
        server = scripted(answer)
        with pytest.raises(ArchiveFailed, match=rf"cannot make a \({words}\), at try 10") as caught:
            open_objects(URL, SimEnv()).create("a", b"own")
        assert len(server.requests) == MAX_TRIES
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (code("403 Forbidden", "AccessDenied"), "403 AccessDenied.*rights"),
            ("401 Unauthorized", "401.*give credentials"),
            ("400 Bad Request", "400.*settings"),
            ("301 Moved Permanently", "another region.*environment"),
        ],
    )
    def test_what_will_not_pass_is_said_at_once(
        self, scripted: Start, answer: str | tuple[str, bytes], words: str
    ) -> None:
        """[AO3, BU3] With what to do, and without any of the library's words."""
        server = scripted(answer)
        objects = open_objects(URL, SimEnv())
        for call in (lambda: objects.create("a", b"x"), lambda: objects.read("a")):
            with pytest.raises(ArchiveFailed, match=words) as caught:
                call()
            text = f"{caught.value} {caught.value.__cause__}"
            assert SECRET not in text
            assert "127.0.0.1" not in text
        assert len(server.requests) == 2

    def test_what_was_not_set_is_said(
        self, scripted: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Plain HTTP that nobody allowed; no credentials, and a machine that has no role."""
        server = scripted("404 Not Found")
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", server.url)
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        objects = open_objects(URL, SimEnv())
        for call in (lambda: objects.create("a", b"x"), lambda: objects.read("a")):
            with pytest.raises(ArchiveFailed, match=r"no credentials.*machine's role"):
                call()
        assert server.requests
        assert not any("bucket" in request for request in server.requests)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.delenv("AWS_ALLOW_HTTP")
        with pytest.raises(ArchiveFailed, match=r"without TLS.*AWS_ALLOW_HTTP=true"):
            open_objects(URL, SimEnv()).create("a", b"x")

    def test_a_lost_answer_is_found_out(self, scripted: Start) -> None:
        """[RO1] Broken off, then refused, then read: the own object, or another's."""
        for found, is_own in ((part(b"own"), True), (part(b"fore", size=7), False)):
            scripted(RESET, "412 Precondition Failed", found)
            assert open_objects(URL, SimEnv()).create("a", b"own") is is_own

    def test_a_conflict_without_an_object_is_tried_again(self, scripted: Start) -> None:
        """A 409, nothing there, then room."""
        missing = code("404 Not Found", "NoSuchKey")
        server = scripted("409 Conflict", missing, "409 Conflict", missing, "200 OK")
        create_own(open_objects(URL, SimEnv()), "a", b"own")
        assert len(server.requests) == 5

    def test_a_part_of_a_large_upload_is_repeated(self, scripted: Start) -> None:
        """Also where the pieces cannot be iterated again: the library has the part."""
        begun = (
            "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
        )
        ended = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
        etag = "200 OK\r\nETag: e\r\n"
        answers = ("200 OK", begun.encode()), "503 Slow Down", (etag, b""), (etag, b"")
        server = scripted(*answers, ("200 OK", ended.encode()))
        pieces = iter([bytes(TRANSFER_BYTES), b"end"])
        open_objects(URL, SimEnv()).upload("packs/1", pieces)
        assert [request.split()[0] for request in server.requests] == ["POST", *["PUT"] * 3, "POST"]

    def test_a_short_read_is_repeated(self, scripted: Start) -> None:
        """A body that ends early, once, and again."""
        scripted(CUT, CUT, part(b"y" * 100))
        assert open_objects(URL, SimEnv()).read("a") == b"y" * 100

    def test_a_listing_in_pages_is_whole(self, scripted: Start) -> None:
        """A page that fails is asked for again; no object is shown twice."""
        first, busy, last = page("one", "two", token="more"), "503 Slow Down", page("three")
        scripted(first, busy, first, last)
        found = [info.name for info in open_objects(URL, SimEnv()).list()]
        assert found == ["one", "two", "three"]

    def test_every_request_ends(self, scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        """[BU1] No answer, or one that stops in its midst, is an error within the time for it."""
        monkeypatch.setattr(buckets, "CALL_SECONDS", 0.2)
        for answer in (HANG, STALL):
            scripted(answer)
            objects = BucketObjects(URL)
            start = time.monotonic()
            with pytest.raises(ArchiveFailed, match=r"no answer in time") as caught:
                objects.read("a", 0, 100)
            assert caught.value.may_pass
            assert time.monotonic() - start < 10

    def test_a_server_that_makes_an_object_twice_is_refused(self, scripted: Start) -> None:
        """It says yes to every create; or that it knows none."""
        scripted("200 OK", "200 OK", part(b"second"), "200 OK")
        with pytest.raises(ArchiveRefused, match="twice under one name"):
            probe(open_objects(URL, SimEnv()), SimEnv())
        scripted("501 Not Implemented")
        with pytest.raises(ArchiveRefused, match="exclusively"):
            probe(open_objects(URL, SimEnv()), SimEnv())

    def test_nothing_is_read_beyond_the_end(self, scripted: Start) -> None:
        """A range that begins there has no bytes; a missing object is not found."""
        scripted(code("416 Range Not Satisfiable", "InvalidRange"))
        assert open_objects(URL, SimEnv()).read("a", 100, 5) == b""
        scripted(code("404 Not Found", "NoSuchKey"))
        with pytest.raises(ObjectNotFound):
            open_objects(URL, SimEnv()).read("a", 100, 5)

    @pytest.mark.parametrize("url", ["s3://", "az://", "az://container", "gs://"])
    def test_a_wrong_url_is_refused(self, url: str) -> None:
        """With the form that it has."""
        with pytest.raises(InvalidArgument, match="s3://BUCKET/PATH"):
            open_objects(url, OsEnv())

    def test_a_store_of_each_kind_is_opened(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing is asked before the first request."""
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
        for url in ("s3://bucket", "s3a://b/a/b", "gs://bucket/a", "az://container/a"):
            assert open_objects(url, OsEnv()).url == url


def test_a_profile_is_read_by_its_own_library(
    scripted: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A profile's credentials sign; one that is not there, or the library, is named."""
    monkeypatch.setenv("AWS_PROFILE", "store")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    if find_spec("boto3") is None:
        with pytest.raises(ArchiveFailed, match="needs the package boto3"):
            open_objects(URL, SimEnv())
        return
    with pytest.raises(ArchiveFailed, match="names no profile"):
        open_objects(URL, SimEnv())
    (tmp_path / "credentials").write_text(
        "[store]\naws_access_key_id = key\naws_secret_access_key = secret\n"
    )
    scripted("200 OK")
    assert open_objects(URL, SimEnv()).create("a", b"x")


def test_a_forked_child_is_refused(scripted: Start) -> None:
    """[BU2] With the parent's objects and with new ones, both of which would hang."""
    scripted("200 OK")
    objects = open_objects(URL, SimEnv())
    objects.overwrite("a", b"x")
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        words = []
        for call in (lambda: objects.overwrite("a", b"x"), lambda: open_objects(URL, SimEnv())):
            try:
                call()
            except ArchiveFailed as error:
                words.append(str(error))
        os.write(writer, "\n".join(words).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(child, 0)
    assert len(lines) == 2
    assert all(f"process {os.getpid()}" in line and "spawn" in line for line in lines)
    objects.overwrite("a", b"x")

"""Objects in an object store: S3, Google, Azure and what speaks as they do, by `obstore`.

- BU1: a request is tried once, and ends: `retries` repeats it, and knows what a lost answer means.
  Only the parts of an upload are repeated by the library, which has their bytes.
- BU2: the library hangs in a child that was forked after its first use: there every call is refused
  in words. It holds signals back while a call lasts.
- BU3: the library's words have addresses in them, and those have signatures: of an error only the
  status, the code and the kind are passed on (AO3).
- Credentials and settings are those that the environment, the machine's role, or the profile of
  AWS_PROFILE gives.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from quire.archive.limits import (
    CALL_SECONDS,
    CONCURRENT_PARTS,
    CONNECT_SECONDS,
    DELETE_BATCH,
    MAX_TRIES,
    MAX_UPLOAD_BYTES,
    RETRY_SECONDS,
    TRANSFER_BYTES,
)
from quire.env import after_fork
from quire.errors import (
    ArchiveError,
    ArchiveFailed,
    ArchiveRefused,
    InvalidArgument,
    ObjectNotFound,
)
from quire.libraries.late_modules import stand_in

from .names import check_name, check_prefix, check_small
from .seam import ObjectBytes, ObjectInfo

SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss")

obstore: Any = stand_in("obstore")
stores: Any = stand_in("obstore.store")
profiles: Any = stand_in("obstore.auth.boto3")
botocore: Any = stand_in("botocore.exceptions")

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_KIND: Final = re.compile(r"HttpError \{\s*kind: (\w+)")
_KINDS: Final = {"Timeout": "no answer in time", "Connect": "no connection to the server"}
_PASSING: Final = ("408", "409", "425", "429", "500", "502", "503", "504", "RequestTimeout")
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
_REMEDIES: Final = {
    "401": "give credentials, by the environment or the machine's role",
    "403": "give credentials with the rights to read, write, list and delete there",
    "404": "make the bucket, or give the URL of another",
}
# What the library says where it is set up wrongly, what that means, and what to do then.
_SETTINGS: Final = (
    (r"BareRedirect", "another region", "give its region by the environment"),
    (r"BadScheme", "an address without TLS", "allow that by AWS_ALLOW_HTTP=true"),
    (
        r"api/token|meta-data|computeMetadata|metadata/identity|TokenRequest",
        "no credentials",
        "give credentials, by the environment or the machine's role",
    ),
)


class _Library:
    """The use of the library by this process, or by one from which it was forked (BU2)."""

    def __init__(self) -> None:
        self._is_used = False
        self._parent = 0  # the process that had used it, if this one is its child
        after_fork(self._note_fork)

    def use(self) -> None:
        """Load it at the first use. Raises ArchiveFailed where it is not there, or would hang."""
        if self._parent:
            raise ArchiveFailed(
                f"process {self._parent}, from which this one was forked, had used an object store,"
                " whose library hangs in a fork: start this process by itself (multiprocessing:"
                " 'spawn' or 'forkserver'), or fork it before the first use"
            )
        try:
            _ = obstore.put, stores.from_url
        except ImportError as error:
            raise ArchiveFailed(
                "an archive in an object store needs the package obstore:"
                " pip install 'quire-mq[archive]'"
            ) from error
        self._is_used = True

    def _note_fork(self, parent: int) -> None:
        if self._is_used and not self._parent:
            self._parent = parent


_library: Final = _Library()


class BucketObjects:
    """The objects below a URL of an object store (see `quire.archive.objects.Objects`)."""

    def __init__(self, url: str) -> None:
        self.url = url
        _library.use()
        self._store = _open_store(url, tries=1)
        self._parts = _open_store(url, tries=MAX_TRIES)

    def create(self, name: str, data: ObjectBytes) -> bool:
        check_small(check_name(name), len(data))
        with self._request("make", name):
            try:
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
            except obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def overwrite(self, name: str, data: ObjectBytes) -> None:
        check_small(check_name(name), len(data))
        with self._request("write", name):
            obstore.put(self._store, name, data, use_multipart=False)

    def upload(self, name: str, pieces: Iterable[ObjectBytes]) -> None:
        check_name(name)
        if isinstance(pieces, list) and len(pieces) == 1 and len(pieces[0]) <= TRANSFER_BYTES:
            return self.overwrite(name, pieces[0])
        source = _UploadPieces(name, pieces)
        try:
            with self._request("write", name):
                obstore.put(
                    self._parts,
                    name,
                    source,
                    chunk_size=TRANSFER_BYTES,
                    max_concurrency=CONCURRENT_PARTS,
                )
        except ArchiveError:
            if source.error is not None:
                raise source.error from None
            raise
        return None

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        if length == 0:
            self.size(name)
            return b""
        span = {"offset": offset} if length is None else (offset, offset + length)
        with self._request("read", check_name(name)):
            try:
                found = obstore.get(self._store, name, options={"range": span})
                data = bytes(found.bytes())
            except obstore.exceptions.BaseError as error:
                if _first(_STATUS, str(error)) == "416":  # it ends before
                    return b""
                raise
        first, end = found.range
        if len(data) != end - first:
            raise self._failure("read", name, f"{len(data)} bytes of {end - first}", may_pass=True)
        return data

    def size(self, name: str) -> int:
        with self._request("read", check_name(name)):
            return int(obstore.head(self._store, name)["size"])

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with self._request("list", check_prefix(prefix)):
            for page in obstore.list(self._store, prefix or None, chunk_size=DELETE_BATCH):
                for found in page:
                    changed_us = round(found["last_modified"].timestamp() * 1e6)
                    yield ObjectInfo(found["path"], found["size"], changed_us)

    def delete(self, names: Iterable[str]) -> None:
        some = [check_name(name) for name in names]
        try:
            with self._request("delete", ""):
                obstore.delete(self._store, some)
        except ObjectNotFound:  # some stores say so: the others may still be there
            for name in some:
                try:
                    with self._request("delete", name):
                        obstore.delete(self._store, name)
                except ObjectNotFound:
                    continue

    def close(self) -> None:
        """Let go of the connections."""
        self._store = self._parts = None

    @contextmanager
    def _request(self, doing: str, name: str) -> Iterator[None]:
        """Raise errors of the library in the block as errors of an archive (BU3)."""
        _library.use()
        try:
            yield
        except (FileNotFoundError, obstore.exceptions.BaseError) as error:
            raise self._translated(error, doing, name) from None

    def _translated(self, error: Exception, doing: str, name: str) -> ArchiveError:
        words = str(error)
        status, code, kind = (_first(pattern, words) for pattern in (_STATUS, _CODE, _KIND))
        setting = next((each for each in _SETTINGS if re.search(each[0], words)), None)
        is_gone = isinstance(error, FileNotFoundError) and code not in _NO_BUCKET
        if is_gone and setting is None and doing in ("read", "delete"):
            return ObjectNotFound(f"there is no object {name} in {self.url}")
        if setting is not None:
            return self._failure(doing, name, setting[1], remedy=setting[2])
        if status == "501" and doing == "make":
            return ArchiveRefused(
                f"{self.url}: its server makes no object exclusively, and so is not fit for an"
                " archive; give a place on one that knows the header If-None-Match"
            )
        reason = " ".join(filter(None, (status, code))) or _KINDS.get(kind, "a broken connection")
        may_pass = status in _PASSING or code in _PASSING
        if not status:
            may_pass = bool(kind)
            reason = reason if may_pass else "no request could be made, or its answer be read"
        return self._failure(
            doing, name, reason, may_pass=may_pass, remedy=_REMEDIES.get(status, "")
        )

    def _failure(
        self, doing: str, name: str, reason: str, *, may_pass: bool = False, remedy: str = ""
    ) -> ArchiveFailed:
        remedy = remedy or "look after its settings, its credentials and its server"
        failure = ArchiveFailed(
            f"{self.url}: cannot {doing} {name or 'objects'} ({reason})"
            + ("" if may_pass else f"; {remedy}, then repeat the operation")
        )
        failure.may_pass = may_pass
        return failure


class _UploadPieces:
    """The pieces of an upload, whose own error is kept."""

    def __init__(self, name: str, pieces: Iterable[ObjectBytes]) -> None:
        self.error: Exception | None = None
        self._name = name
        self._pieces = pieces

    def __iter__(self) -> Iterator[ObjectBytes]:
        size = 0
        try:
            for piece in self._pieces:
                size += len(piece)
                if size > MAX_UPLOAD_BYTES:
                    raise InvalidArgument(
                        f"object {self._name}: at most {MAX_UPLOAD_BYTES} bytes are uploaded"
                    )
                yield piece
        except Exception as error:
            self.error = error
            raise


def _open_store(url: str, tries: int) -> Any:
    """Return the library's object for a URL. Raises InvalidArgument, ArchiveFailed."""
    allows_http = [
        os.environ.get(f"{kind}_ALLOW_HTTP", "").lower() for kind in ("AWS", "GOOGLE", "AZURE")
    ]
    options: dict[str, Any] = {}
    if url.startswith("s3") and "AWS_PROFILE" in os.environ:
        options["credential_provider"] = _profile_credentials()
    try:
        return stores.from_url(
            url,
            client_options={
                "timeout": timedelta(seconds=CALL_SECONDS),
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "allow_http": not {"1", "true"}.isdisjoint(allows_http),
            },
            retry_config={
                "max_retries": tries - 1,
                "retry_timeout": timedelta(seconds=RETRY_SECONDS),
            },
            **options,
        )
    except (obstore.exceptions.BaseError, ValueError):
        raise InvalidArgument(
            f"archive {url}: give s3://BUCKET/PATH, gs://BUCKET/PATH or az://CONTAINER/PATH, and"
            " what its own tools need by the environment (AZURE_STORAGE_ACCOUNT_NAME)"
        ) from None


def _profile_credentials() -> Any:
    """Return the credentials that AWS_PROFILE names. Raises ArchiveFailed."""
    try:
        return profiles.Boto3CredentialProvider()
    except ImportError as error:
        raise ArchiveFailed(
            "AWS_PROFILE needs the package boto3: install it, or give credentials by"
            " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from error
    except (ValueError, botocore.BotoCoreError):
        raise ArchiveFailed(
            "AWS_PROFILE names no profile with credentials: look into ~/.aws, or leave it out"
        ) from None


def _first(pattern: re.Pattern[str], words: str) -> str:
    found = pattern.search(words)
    return found[1] if found else ""

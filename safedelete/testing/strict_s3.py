"""``StrictS3``: moto's S3 in this process, held to what S3 does, and as faulty as a test wants."""

from __future__ import annotations

import hashlib
import io
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from safedelete.errors import ConfigError
from safedelete.testing.barred import LOOPBACK, bar, unbar
from safedelete.testing.servers.faults import Answer, Request
from safedelete.testing.servers.identity import ADMIN, Identity, s3_client
from safedelete.testing.servers.script import Scripted
from safedelete.testing.servers.stub_http import parse
from safedelete.testing.strict_listing import MOST_LISTED, VersionListings
from safedelete.testing.strict_rules import ACCOUNT, delete_many, delete_one, error, refused

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ENDPOINT: Final = "http://strict-s3.invalid"
"""Where its own clients point: a name that resolves nowhere, should anything get past it."""

_ANSWERED: Final = f"{ENDPOINT}/answered"
"""Where a request points once it was answered: every handler of the event is called, moto's own too."""

_started: Final[list[StrictS3]] = []
"""Those that are started; the last one answers, also for the clients of the others."""

_MAX_KEYS: Final = re.compile(r"\bmax-keys=(\d+)\b")
"""moto gives a page of any size."""

_WRITES: Final = ("PutObject", "CompleteMultipartUpload", "Unknown")


class Kept(NamedTuple):
    """An object that is there: its ETag, in quotes, when it was last written, aware, its bytes and its class."""

    etag: str
    modified: datetime
    size: int = 0
    storage_class: str = "STANDARD"


class StrictS3(Scripted):
    """An S3 in this process, on moto, that is as strict as the real one, and answers badly when told.

    While it is started, every S3 client of this process that is made is its client, whatever endpoint it names, except
    for servers on loopback; one that was made before has to be adopted (:meth:`adopt`), and is refused until it is: no
    request of botocore's leaves this machine meanwhile, whatever the service. moto keeps the buckets, so what
    moto can do works: listings, versions, object lock, multipart uploads. What it restores, and what stays lax, is told
    in the documentation. Of several that are started the last one answers; moto's buckets are one set for all of them.

    Args:
        latency: Seconds before each answer.
        patience: Seconds after which a client gives up: an answer that takes longer is a read timeout at once.
        sleep: Waits; a test may move a clock in its place.
        now: The instant at which objects are written, aware; None for the real one.
        record: Keep every request in :attr:`requests`.

    Raises:
        ConfigError: moto is not installed.

    Example:
        >>> from safedelete.testing import StrictS3
        >>> with StrictS3() as store:
        ...     store.create_bucket("acme-uploads")
        ...     etag = store.put("acme-uploads", "a.txt", b"x")
        ...     answer = store.client().delete_objects(
        ...         Bucket="acme-uploads", Delete={"Objects": [{"Key": "a.txt", "ETag": "another"}]}
        ...     )
        ...     [error["Code"] for error in answer["Errors"]], store.keys("acme-uploads")
        (['PreconditionFailed'], {'a.txt'})
    """

    name = "strict-s3"
    endpoint = ENDPOINT

    def __init__(
        self,
        *,
        latency: float = 0.0,
        patience: float = 30.0,
        sleep: Callable[[float], None] | None = None,
        now: Callable[[], datetime] | None = None,
        record: bool = True,
    ) -> None:
        super().__init__(latency=latency, record=record)
        self.patience = patience
        self._sleep = sleep or time.sleep
        self._now = now
        self._denied: set[tuple[str, str]] = set()
        self._listings = VersionListings()
        self._waiting = threading.local()
        self._mock: Any = None
        self._spec: tuple[Any, ...] | None = None

    # --- life ---

    @property
    def running(self) -> bool:
        """Whether it is started."""
        return self._mock is not None

    def start(self) -> Self:
        """Take over the S3 clients of this process that are made from now on. Idempotent."""
        if self._mock is not None:
            return self
        try:
            from moto import mock_aws
        except ImportError as missing:
            raise ConfigError(
                f"StrictS3 needs moto, which cannot be imported: {missing}.",
                hint='pip install "safedelete-purge[testing]".',
            ) from missing
        from botocore import handlers

        self._mock = mock_aws()
        self._mock.start()
        self._spec = ("before-send.s3", self._send, handlers.REGISTER_FIRST)
        handlers.BUILTIN_HANDLERS.append(self._spec)
        if not _started:
            bar(_ANSWERED)
        _started.append(self)
        return self

    def stop(self) -> None:
        """Forget every bucket, and let go of the clients. Idempotent."""
        from botocore import handlers

        mock, self._mock = self._mock, None
        if mock is None:
            return
        _started.remove(self)
        if not _started:
            unbar()
        handlers.BUILTIN_HANDLERS.remove(self._spec)  # type: ignore[arg-type]
        mock.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def client(self, identity: Identity = ADMIN, **config: Any) -> S3Client:
        """Return a boto3 S3 client (path style, no retries).

        Args:
            identity: Who calls; everybody is let in.
            config: Further arguments of ``botocore.config.Config``.
        """
        client = s3_client(self.endpoint, identity, **config)
        self.adopt(client)
        return client

    def adopt(self, client: S3Client) -> None:
        """Take over a client that was made before this was started. Idempotent; it is let go by :meth:`stop`."""
        client.meta.events.register_first(
            "before-send.s3", self._send, unique_id=f"safedelete-strict-{id(self)}"
        )

    # --- the test's side ---

    def create_bucket(self, bucket: str, *, versioned: bool = False) -> None:
        """Make an empty bucket; one that exists is left alone but for its versioning."""
        backend = self._backend()
        if bucket not in backend.buckets:
            backend.create_bucket(bucket, "us-east-1")
        if versioned:
            backend.put_bucket_versioning(bucket, "Enabled")

    def put(
        self,
        bucket: str,
        key: str,
        body: bytes = b"",
        *,
        modified: datetime | None = None,
        size: int | None = None,
        storage_class: str = "STANDARD",
    ) -> str:
        """Store an object without a request, making the bucket if need be; return its ETag, without quotes.

        Args:
            bucket: The bucket.
            key: The key.
            body: Its content.
            modified: When it was last written, aware; None for now. S3 lets nobody choose this.
            size: The bytes it is listed with; those of its content, unless given.
            storage_class: In S3's words.
        """
        self.create_bucket(bucket)
        stored = self._backend().put_object(bucket, key, body, storage=storage_class)
        if size is not None:
            stored.contentsize = size
        self._date(bucket, key, modified)
        return hashlib.md5(body, usedforsecurity=False).hexdigest()

    def keys(self, bucket: str) -> set[str]:
        """Return the keys that are there, delete markers not counted."""
        kept = self._backend().buckets[bucket].keys if bucket in self._backend().buckets else {}
        return {key for key in list(kept) if hasattr(kept.get(key), "etag")}

    def contents(self, *, hidden: Collection[str] = ()) -> dict[tuple[str, str], Kept]:
        """Return every object of every bucket, by bucket and key: current versions, delete markers not counted.

        Args:
            hidden: Buckets of which a key counts as long as any version or marker of it is there; it is as old as the newest.
        """
        found: dict[tuple[str, str], Kept] = {}
        for name, bucket in self._backend().buckets.items():
            for key, versions in list(bucket.keys.iterlists()):
                data = [version for version in versions if hasattr(version, "etag")]
                if versions and (hasattr(versions[-1], "etag") or name in hidden):
                    dated = versions[-1].last_modified.replace(tzinfo=UTC)
                    kept = data[-1] if data else None
                    found[name, key] = (
                        Kept("", dated)
                        if kept is None
                        else Kept(str(kept.etag), dated, kept.size, kept.storage_class)
                    )
        return found

    def history(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return the ids of every version and marker of each key of the buckets that keep versions, oldest first."""
        return {
            (name, key): tuple(str(version.version_id) for version in versions)
            for name, bucket in self._backend().buckets.items()
            if bucket.is_versioned
            for key, versions in list(bucket.keys.iterlists())
            if versions
        }

    def versions(self, bucket: str, key: str) -> int:
        """Return how many versions and markers a key has."""
        return len(self._backend().buckets[bucket].keys.getlist(key, []))

    def empty(self) -> None:
        """Remove every object of every bucket, and every denial; the buckets stay."""
        self._denied.clear()
        for bucket in self._backend().buckets.values():
            bucket.keys.clear()

    def deny(self, bucket: str, keys: Iterable[str]) -> None:
        """Answer AccessDenied when one of these is to be deleted, whoever asks; the other keys of a request go."""
        self._denied |= {(bucket, key) for key in keys}

    def lift(self, bucket: str) -> None:
        """Take back every denial on a bucket."""
        self._denied = {place for place in self._denied if place[0] != bucket}

    # --- the wire's side ---

    def _send(self, request: Any, **_: Any) -> Any:
        """Stand in for the network. Returns None, and so lets the request out, for a server on loopback.

        A client keeps the handler of the one that was started when it was made: whichever is the last one now answers.
        """
        url = request.url
        if not _started or url == _ANSWERED or (urlsplit(url).hostname or "") in LOOPBACK:
            return None
        return _started[-1]._answered(request)  # noqa: SLF001  # one of ourselves

    def _answered(self, request: Any) -> Any:
        url = request.url
        from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

        self._waiting.request = request
        answer = self.answer(self._parsed(request))
        request.url = _ANSWERED
        if answer.delay >= self.patience:
            raise ReadTimeoutError(endpoint_url=url)
        if answer.delay:
            self._sleep(answer.delay)
        if not answer.status or (answer.announced is not None and answer.announced != len(answer.body)):
            # What a client sees of a reset, and of an answer that ends before its announced length.
            raise ConnectionClosedError(endpoint_url=url)
        return _response(url, request.method, answer)

    def _parsed(self, request: Any) -> Request:
        parts = urlsplit(request.url)
        host, path = parts.hostname or "", parts.path
        label = host.partition(".")[0]
        bucket = host.partition(".s3")[0] if host.endswith(".amazonaws.com") and ".s3" in host else ""
        if not bucket and label in self._backend().buckets:
            bucket = label
        target = f"/{bucket}{path}" if bucket else path
        headers = {
            name: value.decode("latin-1") if isinstance(value, bytes) else str(value)
            for name, value in request.headers.items()
        }
        body = request.body if isinstance(request.body, bytes) else b""
        return parse(request.method, f"{target}?{parts.query}" if parts.query else target, headers, body)

    def _honest(self, request: Request, refuse: Mapping[str, str]) -> Answer:
        no = refused(request)
        if no is not None:
            return no
        if request.bucket and request.bucket not in self._backend().buckets:
            if request.operation in ("DeleteObject", "DeleteObjects"):
                return error(404, "NoSuchBucket")
        elif request.operation == "ListObjectVersions":
            return self._listings.answer(self._backend().buckets[request.bucket], request)
        elif request.operation == "DeleteObjects":
            return delete_many(self._backend(), request, refuse, self._denies, self._hidden)
        elif request.method == "DELETE" and request.key and _about_the_object(request):
            return delete_one(self._backend(), request, refuse, self._denies, self._hidden)
        return self._moto(request)

    def _hidden(self, bucket: str, key: str) -> None:
        """Date the delete marker that was put on top of a key."""
        self._date(bucket, key, None)

    def _moto(self, request: Request) -> Answer:
        from botocore.awsrequest import AWSPreparedRequest
        from moto.core.models import botocore_stubber

        sent = self._waiting.request
        query = _MAX_KEYS.sub(
            lambda asked: f"max-keys={min(int(asked[1]), MOST_LISTED)}", urlsplit(sent.url).query
        )
        url = f"https://s3.amazonaws.com{request.path}" + (f"?{query}" if query else "")
        found = botocore_stubber.process_request(
            AWSPreparedRequest(request.method, url, sent.headers, sent.body, sent.stream_output)
        )
        assert found is not None, f"moto does not know {request.method} {url}"
        status, headers, body = found
        if request.operation in _WRITES and request.method in ("PUT", "POST") and status == 200:
            self._date(request.bucket, request.key, None)
        return Answer(
            int(status),
            body.encode() if isinstance(body, str) else bytes(body),
            {str(k): str(v) for k, v in headers.items()},
        )

    def _denies(self, bucket: str, key: str) -> bool:
        return (bucket, key) in self._denied

    def _date(self, bucket: str, key: str, modified: datetime | None) -> None:
        """Date what was written last under a key."""
        instant = modified or (self._now() if self._now is not None else None)
        written = self._backend().buckets[bucket].keys.getlist(key, [])
        if instant is None or not written:
            return
        written[-1].last_modified = instant.astimezone(UTC).replace(tzinfo=None)

    def _backend(self) -> Any:
        from moto.s3.models import s3_backends

        assert self._mock is not None, "StrictS3 is not started"
        return s3_backends[ACCOUNT]["aws"]


def _about_the_object(request: Request) -> bool:
    """Whether a DELETE is of the object itself, and not of its tags, or of an upload."""
    return not request.query.keys() & {"tagging", "uploadId"}


def _response(url: str, method: str, answer: Answer) -> Any:
    from botocore.awsrequest import AWSResponse

    headers: Any = {"Content-Length": str(len(answer.body)), **answer.headers}
    raw: Any = _Raw(b"" if method == "HEAD" else answer.body)
    return AWSResponse(url, answer.status, headers, raw)


class _Raw(io.BytesIO):
    """A body as botocore reads it."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        """Yield all of it."""
        yield self.read()

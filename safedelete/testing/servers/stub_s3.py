"""An object store in this process that answers at once, truthfully or as badly as told.

Only a stub produces a truncated answer, a key that was not asked for, or a reset between the deletion and its
acknowledgement. It also serves benchmarks as the store that costs nothing. It checks no signature.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote

from safedelete.testing.servers.faults import (
    NAMESPACE,
    XML,
    Answer,
    Entry,
    Request,
    error_body,
    escaped,
)
from safedelete.testing.servers.identity import ADMIN, Identity, s3_client
from safedelete.testing.servers.script import Scripted
from safedelete.testing.servers.stub_http import StubHTTPServer
from safedelete.testing.servers.stub_object import StoredObject, got, refusal
from safedelete.testing.servers.stub_versions import Versions

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_MAX_KEYS = 1000


class StubS3(Scripted):
    """The stub store. Every method may be called from any thread, while it serves.

    Args:
        latency: Seconds before each answer.
        record: Keep every request in :attr:`requests`; off for benchmarks, where only :attr:`counts` is kept.
    """

    name = "stub-s3"

    def __init__(self, *, latency: float = 0.0, record: bool = True) -> None:
        super().__init__(latency=latency, record=record)
        self._buckets: dict[str, dict[str, StoredObject]] = {}
        self._sorted: dict[str, list[str]] = {}
        self._versions: dict[str, Versions] = {}
        self._server: StubHTTPServer | None = None

    # --- life ---

    @property
    def endpoint(self) -> str:
        """URL of the S3 API."""
        assert self._server is not None, "the stub is not started"
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def running(self) -> bool:
        """Whether it is started."""
        return self._server is not None

    def client(self, identity: Identity = ADMIN, **config: Any) -> S3Client:
        """Return a boto3 S3 client (path style, no retries).

        Args:
            identity: Who calls; the stub lets everybody in.
            config: Further arguments of ``botocore.config.Config``.
        """
        return s3_client(self.endpoint, identity, **config)

    def start(self) -> Self:
        """Start it; it listens when this returns."""
        if self._server is None:
            self._server = StubHTTPServer(self.answer)
            self._server.start()
        return self

    def stop(self) -> None:
        """Stop listening, and end the requests that wait. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- the test's side ---

    def create_bucket(self, bucket: str, *, versioned: bool = False) -> None:
        """Make an empty bucket; one that exists is left alone."""
        with self._lock:
            if bucket not in self._buckets:
                self._buckets[bucket] = {}
                if versioned:
                    self._versions[bucket] = Versions(self._buckets[bucket])

    def versions(self, bucket: str) -> Versions:
        """Return the versions of a versioned bucket."""
        return self._versions[bucket]

    def put(
        self,
        bucket: str,
        key: str,
        body: bytes = b"",
        *,
        modified: datetime | None = None,
        storage: str | None = "STANDARD",
    ) -> StoredObject:
        """Store an object without a request, making the bucket if need be.

        Args:
            bucket: The bucket.
            key: The key.
            body: Its content.
            modified: Aware instant; None for now.
            storage: Storage class; None to leave it out of listings.
        """
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        stored = StoredObject(body, etag, modified or datetime.now(UTC), storage)
        with self._lock:
            objects = self._buckets.setdefault(bucket, {})
            if key not in objects:
                self._sorted.pop(bucket, None)
            if bucket in self._versions:
                self._versions[bucket].write(key, stored)
            objects[key] = stored
        return stored

    def keys(self, bucket: str) -> set[str]:
        """Return the keys that are there."""
        with self._lock:
            return set(self._buckets.get(bucket, {}))

    # --- the wire's side ---

    def _honest(self, request: Request, refuse: Mapping[str, str]) -> Answer:
        if request.operation == "CreateBucket":
            self.create_bucket(request.bucket)
            return Answer(200, headers={"Location": f"/{request.bucket}"})
        objects = self._buckets.get(request.bucket)
        if objects is None:
            return _error(404, "NoSuchBucket")
        versions = self._versions.get(request.bucket)
        answer = None
        if versions is not None:
            answer = versions.answer(request, refuse)
            # A key may have come back to sight.
            self._sorted.pop(request.bucket, None)
        return answer or self._unversioned(request, objects, refuse)

    def _unversioned(
        self, request: Request, objects: dict[str, StoredObject], refuse: Mapping[str, str]
    ) -> Answer:
        if "versionId" in request.query:
            return _error(501, "NotImplemented")
        if request.operation == "DeleteObjects":
            return self._delete_objects(request, objects, refuse)
        if request.operation == "ListObjectsV2":
            return self._list(request, objects)
        if request.key:
            return self._one(request, objects)
        return _ABOUT_A_BUCKET.get(request.operation) or _error(501, "NotImplemented")

    def _one(self, request: Request, objects: dict[str, StoredObject]) -> Answer:
        if request.operation in ("GetObject", "HeadObject"):
            return got(objects.get(request.key), head=request.operation == "HeadObject")
        if request.operation == "PutObject":
            stored = self.put(request.bucket, request.key, request.body)
            return Answer(200, headers={"ETag": f'"{stored.etag}"'})
        if request.operation != "DeleteObject":
            return _error(501, "NotImplemented")
        code = refusal(objects, Entry(request.key, etag=request.headers.get("if-match")))
        if code is not None:
            return _error(412 if code == "PreconditionFailed" else 404, code)
        objects.pop(request.key, None)
        return Answer(204)

    def _delete_objects(
        self, request: Request, objects: dict[str, StoredObject], refuse: Mapping[str, str]
    ) -> Answer:
        if request.malformed or not 1 <= len(request.entries) <= _MAX_KEYS:
            return _error(400, "MalformedXML")
        quiet = b"<Quiet>true</Quiet>" in request.body
        parts = [f'<?xml version="1.0" encoding="UTF-8"?><DeleteResult xmlns="{NAMESPACE}">']
        for entry in request.entries:
            code = refuse.get(entry.key) or refusal(objects, entry)
            if code is not None:
                parts.append(
                    f"<Error><Key>{escaped(entry.key)}</Key><Code>{code}</Code><Message>stub</Message></Error>"
                )
                continue
            objects.pop(entry.key, None)
            if not quiet:
                parts.append(f"<Deleted><Key>{escaped(entry.key)}</Key></Deleted>")
        parts.append("</DeleteResult>")
        return Answer(200, "".join(parts).encode(), XML)

    def _list(self, request: Request, objects: dict[str, StoredObject]) -> Answer:
        query = request.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        limit = min(int(query.get("max-keys", _MAX_KEYS)), _MAX_KEYS)
        token = unquote(query.get("continuation-token", ""))
        after = token or query.get("start-after", "")
        names = self._names(request.bucket, objects)
        shown: list[str] = []
        groups: list[str] = []
        last, more = "", False
        for place in range(max(bisect_left(names, prefix), bisect_right(names, after)), len(names)):
            name = names[place]
            if not name.startswith(prefix):
                break
            # A sorted copy outlives deletions; a group is told once, also over a page's end.
            if name not in objects or (groups and name.startswith(groups[-1])):
                continue
            cut = name.find(delimiter, len(prefix)) if delimiter else -1
            group = name[: cut + len(delimiter)] if cut >= 0 else ""
            if group and token.startswith(group):
                continue
            if len(shown) + len(groups) >= limit:
                more = True
                break
            last = name
            if group:
                groups.append(group)
            else:
                shown.append(name)
        return Answer(
            200, _listing(request, [(n, objects[n]) for n in shown], groups, last if more else ""), XML
        )

    def _names(self, bucket: str, objects: dict[str, StoredObject]) -> list[str]:
        if bucket not in self._sorted:
            # Python's order of strings is by code point, which is S3's order by UTF-8 byte.
            self._sorted[bucket] = sorted(objects)
        return self._sorted[bucket]


def _listing(request: Request, shown: list[tuple[str, StoredObject]], groups: list[str], token: str) -> bytes:
    url = request.query.get("encoding-type") == "url"

    def named(text: str) -> str:
        return quote(text, safe="/") if url else escaped(text)

    contents = "".join(
        f"<Contents><Key>{named(key)}</Key><LastModified>{stored.modified.astimezone(UTC):%Y-%m-%dT%H:%M:%S.000Z}"
        f"</LastModified><ETag>&quot;{stored.etag}&quot;</ETag><Size>{len(stored.body)}</Size>"
        f"{f'<StorageClass>{stored.storage}</StorageClass>' if stored.storage else ''}</Contents>"
        for key, stored in shown
    )
    common = "".join(f"<CommonPrefixes><Prefix>{named(group)}</Prefix></CommonPrefixes>" for group in groups)
    # The token is opaque to clients and may hold any character of a key; it is not decoded by them as keys are.
    following = f"<NextContinuationToken>{quote(token, safe='')}</NextContinuationToken>" if token else ""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="{NAMESPACE}"><Name>{request.bucket}</Name>'
        f"<Prefix>{named(request.query.get('prefix', ''))}</Prefix><KeyCount>{len(shown) + len(groups)}</KeyCount>"
        f"<MaxKeys>{request.query.get('max-keys', _MAX_KEYS)}</MaxKeys>"
        f"{'<EncodingType>url</EncodingType>' if url else ''}"
        f"<IsTruncated>{str(bool(token)).lower()}</IsTruncated>{following}{contents}{common}</ListBucketResult>"
    ).encode()


def _error(status: int, code: str) -> Answer:
    return Answer(status, error_body(code, "stub"), XML)


_ABOUT_A_BUCKET = {
    "HeadBucket": Answer(200),
    "GetBucketVersioning": Answer(200, f'<VersioningConfiguration xmlns="{NAMESPACE}"/>'.encode(), XML),
    "GetBucketLocation": Answer(200, f'<LocationConstraint xmlns="{NAMESPACE}"/>'.encode(), XML),
    "GetObjectLockConfiguration": _error(404, "ObjectLockConfigurationNotFoundError"),
    "GetBucketReplication": _error(404, "ReplicationConfigurationNotFoundError"),
}

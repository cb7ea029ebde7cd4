"""Read an S3 Inventory report as a listing; one that is not whole, not fresh or not of this bucket is an error.

Reads only. Each file is fetched to a temporary file and held against the MD5 that the manifest gives for it before a
line of it is used, and the manifest against its own checksum. What an inventory says is a day old: what is planned from
it is looked at again before it is deleted, which is the store's business (``always_look``).
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import unquote_plus

from safedelete.declare.inventory import Inventory
from safedelete.errors import ConfigError, StoreError
from safedelete.s3.codes import SDK_ERRORS, store_error
from safedelete.s3.entry import quoted
from safedelete.s3.listing import LARGEST, Listed, list_objects

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

VERSION: Final = "2016-11-30"
_PAGE: Final = 1000
_CHUNK: Final = 1 << 20
_LONGEST_MANIFEST: Final = 64 << 20
_REPORT: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\dZ)/manifest\.checksum")
_ARN: Final = "arn:aws:s3:::"

# The columns by their names in CSV; Parquet spells them in its own way.
_PARQUET: Final = {
    "Bucket": "bucket",
    "Key": "key",
    "VersionId": "version_id",
    "IsLatest": "is_latest",
    "IsDeleteMarker": "is_delete_marker",
    "Size": "size",
    "LastModifiedDate": "last_modified_date",
    "ETag": "e_tag",
    "StorageClass": "storage_class",
}
_NEEDED: Final = ("Bucket", "Key", "Size", "LastModifiedDate", "ETag")
_VERSIONED: Final = ("IsLatest", "IsDeleteMarker")
_UNREADABLE: Final = (OSError, EOFError, zlib.error, csv.Error, ValueError, KeyError, TypeError)
"""What reading a file raises that is not what the manifest says it is."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a report."""

    key: str
    size: int
    md5: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A report's own account of itself.

    Attributes:
        url: Where it was read.
        created: When S3 began to make it, aware UTC.
        format: ``CSV`` or ``Parquet``.
        columns: The names of a CSV file's columns, in order; empty for Parquet, whose files name their own.
        files: In the manifest's order.
    """

    url: str
    created: datetime
    format: str
    columns: tuple[str, ...]
    files: tuple[File, ...]


class InventoryReader:
    """Reads the report that an ``Inventory`` names; the same one each time, also when a newer one arrives meanwhile.

    Args:
        client: The client; reads the bucket that the report is in.
        declared: The declaration.
        source: The bucket that the report must be about.
        classes: Whether storage classes are selected by, so that the report must name them.
    """

    def __init__(self, client: S3Client, declared: Inventory, source: str, *, classes: bool = False) -> None:
        self._client = client
        self._declared = declared
        self._source = source
        self._needed = (*_NEEDED, "StorageClass") if classes else _NEEDED
        self._manifest: Manifest | None = None

    def pages(self, as_of: datetime, since: datetime | None, prefix: str) -> Iterator[list[Listed]]:
        """Yield the current objects under a prefix as the report names them, in its order. Reads only.

        Args:
            as_of: The plan's instant, which the report must not be too old for.
            since: ``as_of`` of the last successful run, whose deletions the report must know of; None for none.
            prefix: Leading characters of the keys.

        Raises:
            StoreError: The report, or one file of it, is missing, damaged, too old, or about another bucket. What was
                yielded so far is not the whole.
            ConfigError: It is a Parquet report, and pyarrow is not installed.
        """
        if self._manifest is None:
            self._manifest = self._read_manifest()
        manifest = self._manifest
        self._check_age(manifest, as_of, since)
        for file in manifest.files:
            what = f"Reading the inventory file s3://{self._declared.bucket}/{file.key}"
            with self._fetched(file, what) as content:
                rows = (
                    self._csv(content, manifest) if manifest.format == "CSV" else self._parquet(content, what)
                )
                page: list[Listed] = []
                try:
                    for row in rows:
                        item = self._listed(row)
                        if item is not None and item.key.startswith(prefix):
                            page.append(item)
                            if len(page) == _PAGE:
                                yield page
                                page = []
                except _UNREADABLE as error:
                    raise _damaged(what, f"{type(error).__name__}: {error}") from error
                if page:
                    yield page

    def notes(self) -> Iterator[str]:
        """Return what a reader of the plan should know about where its keys come from."""
        if self._manifest is None:
            return
        yield (
            f"the keys come from the inventory {self._manifest.url}, begun at {self._manifest.created.isoformat()} "
            f"({len(self._manifest.files):,} file(s), each one's MD5 checked): what was written since is not in it, and "
            "what its configuration leaves out by a filter is not either"
        )
        yield (
            "each key is looked at again right before it is deleted (HEAD, or a listing where that is cheaper): it stays "
            "when its ETag is another one or it was written since, and counts as gone when it is not there any more"
        )

    def _check_age(self, manifest: Manifest, as_of: datetime, since: datetime | None) -> None:
        age = as_of.astimezone(UTC) - manifest.created
        if age > self._declared.max_age:
            raise StoreError(
                f"The inventory {manifest.url} was begun at {manifest.created.isoformat()}, {_words(age)} before this "
                f"plan; at most {_words(self._declared.max_age)} are allowed (max_age).",
                hint="Wait for the next report, see why none came, or raise Inventory(max_age=...).",
            )
        if age < -timedelta(hours=1):
            raise StoreError(
                f"The inventory {manifest.url} says that it was begun at {manifest.created.isoformat()}, after this plan.",
                hint="Check this host's clock.",
            )
        if since is not None and manifest.created < since:
            raise StoreError(
                f"The inventory {manifest.url} was begun at {manifest.created.isoformat()}, before the last successful run "
                f"({since.isoformat()}): it still names what that run deleted, so its counts are wrong.",
                hint="Wait for the next report: schedule the purge no more often than the inventory is made.",
            )

    def _read_manifest(self) -> Manifest:
        key = self._newest() if self._declared.newest else self._declared.key
        url = f"s3://{self._declared.bucket}/{key}"
        what = f"Reading the inventory manifest {url}"
        text = self._get(key, what)
        checksum = self._get(key.removesuffix(".json") + ".checksum", f"Reading the checksum of {url}")
        found = hashlib.md5(text, usedforsecurity=False).hexdigest()
        wanted = checksum.decode("ascii", "replace").strip().lower()
        if found != wanted:
            raise _damaged(what, f"its MD5 is {found}, and manifest.checksum says {wanted[:80]!r}")
        try:
            return self._parse_manifest(url, json.loads(text))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise _damaged(what, f"it is no inventory manifest ({type(error).__name__}: {error})") from error

    def _newest(self) -> str:
        folder = self._declared.key
        # The years begin with 2: that leaves out the data files, which stand beside the reports.
        pages = list_objects(self._client, self._declared.bucket, f"{folder}2")
        found = [m[1] for page in pages for item in page if (m := _REPORT.fullmatch(item.key[len(folder) :]))]
        if not found:
            raise StoreError(
                f"There is no finished inventory report under {self._declared.url}.",
                hint="Name the folder that holds the dated ones: s3://DESTINATION/PREFIX/SOURCE-BUCKET/CONFIGURATION/.",
            )
        return f"{folder}{max(found)}/manifest.json"

    def _parse_manifest(self, url: str, document: Mapping[str, Any]) -> Manifest:
        if document["version"] != VERSION:
            raise StoreError(
                f"The inventory {url} is of version {document['version']!r}; {VERSION} is what can be read.",
                hint="Leave inventory= out until this version can be read.",
            )
        if document["sourceBucket"] != self._source:
            raise StoreError(
                f"The inventory {url} is about bucket {document['sourceBucket']!r}, not {self._source!r}.",
                hint="Name the inventory of the bucket that is purged.",
            )
        destination = str(document["destinationBucket"]).rpartition(":::")[2]
        if destination != self._declared.bucket:
            raise StoreError(
                f"The inventory {url} was delivered to bucket {destination!r}, and was read from "
                f"{self._declared.bucket!r}: its files need not be those that the manifest means.",
                hint="Name the manifest where S3 delivered it.",
            )
        kind = document["fileFormat"]
        if kind not in ("CSV", "Parquet"):
            raise StoreError(
                f"The inventory {url} is of format {kind!r}; CSV and Parquet can be read.",
                hint="Set the inventory configuration's format to Parquet or CSV.",
            )
        columns = tuple(c.strip() for c in document["fileSchema"].split(",")) if kind == "CSV" else ()
        if kind == "CSV":
            self._check_columns(columns, url)
        files = tuple(File(f["key"], int(f["size"]), f["MD5checksum"].lower()) for f in document["files"])
        if not files or len({file.key for file in files}) < len(files):
            raise ValueError(
                f"it names {len(files)} files, {len({file.key for file in files})} of them different"
            )
        created = datetime.fromtimestamp(int(document["creationTimestamp"]) / 1000, UTC)
        return Manifest(url, created, kind, columns, files)

    def _check_columns(self, columns: Sequence[str], url: str) -> None:
        needed = (*self._needed, *(_VERSIONED if "VersionId" in columns else ()))
        missing = [name for name in needed if name not in columns]
        if missing:
            raise StoreError(
                f"The inventory {url} has no column {', '.join(missing)}, without which what it names cannot be judged.",
                hint="Add the field to the inventory configuration, and wait for the next report.",
            )

    def _get(self, key: str, what: str) -> bytes:
        try:
            body = self._client.get_object(Bucket=self._declared.bucket, Key=key)["Body"]
            text = body.read(_LONGEST_MANIFEST + 1)
        except SDK_ERRORS as error:
            raise store_error(error, what) from error
        if len(text) > _LONGEST_MANIFEST:
            raise _damaged(what, f"it is longer than {_LONGEST_MANIFEST:,} bytes")
        return text

    @contextmanager
    def _fetched(self, file: File, what: str) -> Iterator[IO[bytes]]:
        digest = hashlib.md5(usedforsecurity=False)
        with tempfile.TemporaryFile() as content:
            try:
                body = self._client.get_object(Bucket=self._declared.bucket, Key=file.key)["Body"]
                for chunk in body.iter_chunks(_CHUNK):
                    digest.update(chunk)
                    content.write(chunk)
                    if content.tell() > file.size:
                        # Not the file that the manifest means, and the disk is the host's.
                        break
            except SDK_ERRORS as error:
                raise store_error(error, what) from error
            if content.tell() != file.size or digest.hexdigest() != file.md5:
                raise _damaged(
                    what,
                    f"it has {content.tell():,} bytes and MD5 {digest.hexdigest()}, and the manifest says "
                    f"{file.size:,} and {file.md5[:80]}",
                )
            content.seek(0)
            yield content

    def _csv(self, content: IO[bytes], manifest: Manifest) -> Iterator[dict[str, Any]]:
        with (
            gzip.open(content) as raw,
            io.TextIOWrapper(raw, encoding="utf-8", newline="") as text,
        ):
            for row in csv.reader(text, strict=True):
                if len(row) != len(manifest.columns):
                    raise ValueError(f"a line has {len(row)} fields, and the schema {len(manifest.columns)}")
                found: dict[str, Any] = dict(zip(manifest.columns, row, strict=True))
                found["Key"] = unquote_plus(found["Key"], errors="strict")
                for name in _VERSIONED:
                    if name in found:
                        found[name] = {"true": True, "false": False}[found[name].lower()]
                yield found

    def _parquet(self, content: IO[bytes], what: str) -> Iterator[dict[str, Any]]:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise ConfigError(
                f"{what} needs pyarrow, which is not installed.",
                hint='Install it with: pip install "safedelete-purge[inventory]"',
            ) from error
        try:
            file = pq.ParquetFile(content)
            there = set(file.schema_arrow.names)
            names = {name: own for name, own in _PARQUET.items() if own in there}
            self._check_columns(list(names), what.rpartition(" ")[2])
            for batch in file.iter_batches(batch_size=_PAGE, columns=list(names.values())):
                for row in batch.to_pylist():
                    yield {name: row[own] for name, own in names.items()}
        except pa.ArrowException as error:
            raise _damaged(what, f"{type(error).__name__}: {error}") from error

    def _listed(self, row: Mapping[str, Any]) -> Listed | None:
        if row["Bucket"] != self._source:
            raise ValueError(f"it names an object of bucket {row['Bucket']!r}")
        if not row["Key"]:
            raise ValueError("it names an object without a key")
        for name in _VERSIONED:
            if name in row and not isinstance(row[name], bool):
                raise ValueError(f"{row['Key']!r} has {row[name]!r} as {name}")
        if not row.get("IsLatest", True) or row.get("IsDeleteMarker", False):
            return None
        if not row["ETag"] or row["Size"] in ("", None) or not row["LastModifiedDate"]:
            raise ValueError(f"{row['Key']!r} has no ETag, size or time")
        size = int(row["Size"])
        if not 0 <= size < LARGEST:
            raise ValueError(f"{row['Key']!r} has {size} bytes")
        return Listed(
            row["Key"],
            quoted(row["ETag"]),
            size,
            row["LastModifiedDate"],
            row.get("StorageClass") or None,
        )


def _damaged(what: str, how: str) -> StoreError:
    return StoreError(
        f"{what} found it damaged: {how}.",
        hint="An inventory that is not whole is not used. Fetch it by hand to see, or wait for the next report.",
    )


def _words(age: timedelta) -> str:
    hours = age / timedelta(hours=1)
    return f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} hours"

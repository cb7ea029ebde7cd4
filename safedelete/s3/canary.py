"""Find out whether an endpoint honours a condition on ETag, by risking an object made for that purpose.

Several stores accept the condition and delete all the same, and nothing in their answers tells. So a canary is put where
the user allowed it, and is asked to be deleted under a condition that does not hold, through both delete requests. If it
is still there each time, the condition protects; in any other case it must be taken for ignored.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from safedelete.errors import StoreError
from safedelete.s3.client import Connection
from safedelete.s3.codes import SDK_ERRORS, Meaning, code_of, detail_of, meaning_of, status_of, store_error
from safedelete.s3.probe import IMPOSSIBLE


@dataclass(frozen=True, slots=True)
class Honoured:
    """Whether conditions protect objects of a bucket.

    Attributes:
        together: By DeleteObjects.
        alone: By DeleteObject.
        said: What was seen, for a person.
    """

    together: bool
    alone: bool
    said: str

    @property
    def both(self) -> bool:
        """Whether both requests honour it, which is what may be relied on."""
        return self.together and self.alone


def prove_conditional(connection: Connection, bucket: str, folder: str) -> Honoured:
    """Put a canary, try to delete it under a false condition, and see whether it is still there.

    Writes one object of a few bytes and deletes it again; asked for by the user (``require_conditional=True``) and
    never part of a plan. On a versioned bucket the canary leaves a version and a marker behind, so it is not tried
    there: versions are named by their id and cannot be overwritten.

    Args:
        connection: The endpoint.
        bucket: An unversioned bucket.
        folder: Where the canary may be put, with its slash at the end.

    Raises:
        StoreError: The canary could not be put, looked at or removed.
    """
    client = connection.reader

    def together(key: str) -> None:
        answer = client.delete_objects(
            Bucket=bucket, Delete={"Objects": [{"Key": key, "ETag": IMPOSSIBLE}], "Quiet": False}
        )
        errors = answer.get("Errors") or []
        if len(errors) == 1 and meaning_of(str(errors[0].get("Code"))) is Meaning.CHANGED:
            raise _RefusedError
        if answer.get("Deleted") or not errors:
            return
        raise StoreError(
            f"DeleteObjects under a false condition on s3://{bucket}/{key} was answered with {errors[0].get('Code')}.",
            hint="The store does not know conditional deletes; leave require_conditional out.",
        )

    def alone(key: str) -> None:
        client.delete_object(Bucket=bucket, Key=key, IfMatch=IMPOSSIBLE)

    results: dict[str, bool] = {}
    for name, attempt in (("DeleteObjects", together), ("DeleteObject", alone)):
        results[name] = _survives(client, bucket, folder, attempt)
    words = {True: "kept the object", False: "ignored the condition"}
    said = "; ".join(f"{name} {words[kept]}" for name, kept in results.items())
    return Honoured(results["DeleteObjects"], results["DeleteObject"], said)


class _RefusedError(Exception):
    """The store says that the condition does not hold."""


def _survives(client: Any, bucket: str, folder: str, attempt: Callable[[str], None]) -> bool:
    key = f"{folder}.safedelete-canary-{uuid.uuid4().hex}"
    where = f"s3://{bucket}/{key}"
    try:
        put = client.put_object(Bucket=bucket, Key=key, Body=b"safedelete canary")
    except SDK_ERRORS as error:
        raise store_error(error, f"Putting the canary {where}") from error
    refused = False
    try:
        try:
            attempt(key)
        except _RefusedError:
            refused = True
        except SDK_ERRORS as error:
            if meaning_of(code_of(error), status_of(error)) is not Meaning.CHANGED:
                raise store_error(error, f"Trying a conditional delete on {where}") from error
            refused = True
        try:
            client.head_object(Bucket=bucket, Key=key)
        except SDK_ERRORS as error:
            if status_of(error) != 404:
                raise store_error(error, f"Looking at the canary {where}") from error
            return False
    finally:
        _remove(client, bucket, key, put.get("VersionId"))
    # Still there, but not because the store said so: it may only be slow to show what it did.
    return refused


def _remove(client: Any, bucket: str, key: str, version: str | None) -> None:
    options = {"Bucket": bucket, "Key": key} | ({"VersionId": version} if version else {})
    try:
        client.delete_object(**options)
    except SDK_ERRORS as error:
        raise StoreError(
            f"The canary s3://{bucket}/{key} could not be removed: {code_of(error)}: {detail_of(error)}",
            hint="Delete it by hand; it is a few bytes and named as a canary.",
        ) from error

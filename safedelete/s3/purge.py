"""Purge keys that were sealed without their versions: what a row owns is the key, so all of its versions go with the row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import DELETED, GONE, ItemOutcome, Outcome
from safedelete.errors import StoreError
from safedelete.s3.delete import OVERWRITTEN
from safedelete.s3.entry import quoted
from safedelete.s3.versioning import versions_of

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

Delete = Callable[[Sequence[ObjectRef]], Mapping[ObjectRef, ItemOutcome]]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Each(Protocol):
    """Asks for each item, several at a time."""

    def __call__(self, items: Sequence[Item], ask: Callable[[Item], Result]) -> list[Result]:
        """Return the answers in the order of the items."""


def _one_by_one(items: Sequence[Item], ask: Callable[[Item], Result]) -> list[Result]:
    return [ask(item) for item in items]


_WORST: Final = (
    Outcome.UNKNOWN,
    Outcome.FAILED,
    Outcome.BLOCKED,
    Outcome.CHANGED,
    Outcome.DELETED,
    Outcome.GONE,
)


def purge_keys(
    client: S3Client,
    bucket: str,
    refs: Sequence[ObjectRef],
    delete: Delete,
    *,
    each: Each = _one_by_one,
) -> dict[ObjectRef, ItemOutcome]:
    """Delete every version and marker of these keys, and give each key one outcome. Deletes.

    A key counts as deleted when all of its versions are. Where the plan knows an ETag and the current version has
    another one, all of them stay.

    Args:
        client: Lists the versions.
        bucket: A versioned bucket.
        refs: Keys without a version.
        delete: Deletes versions and answers for each.
        each: How the keys are listed: rows are held meanwhile, so several at a time.
    """
    versions: dict[ObjectRef, tuple[ObjectRef, ...]] = {}
    outcomes: dict[ObjectRef, ItemOutcome] = {}
    by_key: dict[str, list[ObjectRef]] = {}
    for ref in refs:
        by_key.setdefault(ref.key, []).append(ref)

    def listed(key: str) -> tuple[ObjectRef, ...] | StoreError:
        try:
            return versions_of(client, bucket, [key])[key]
        except StoreError as error:
            return error

    keys = list(by_key)
    there = dict(zip(keys, each(keys, listed), strict=True))
    for ref in refs:
        found = there[ref.key]
        if isinstance(found, StoreError):
            outcomes[ref] = ItemOutcome(
                Outcome.FAILED, "unlisted", f"kept: its versions could not be listed ({found})"
            )
        elif not found:
            outcomes[ref] = GONE
        elif any(is_another(same, found[-1]) for same in by_key[ref.key]):
            outcomes[ref] = OVERWRITTEN
        else:
            versions[ref] = found
    answers = delete([version for found in versions.values() for version in found]) if versions else {}
    for ref, found in versions.items():
        outcomes[ref] = _join([answers[version] for version in found])
    return outcomes


def is_another(ref: ObjectRef, current: ObjectRef) -> bool:
    """Whether a key's current version is not the one that was planned; a marker is no other object."""
    return ref.etag is not None and current.etag is not None and quoted(ref.etag) != quoted(current.etag)


def _join(answers: Sequence[ItemOutcome]) -> ItemOutcome:
    worst = min(answers, key=lambda answer: _WORST.index(answer.state))
    if worst.state in (Outcome.DELETED, Outcome.GONE):
        return DELETED if any(answer.state is Outcome.DELETED for answer in answers) else GONE
    kept = sum(answer.state not in (Outcome.DELETED, Outcome.GONE) for answer in answers)
    return ItemOutcome(
        worst.state, worst.code, f"{kept} of {len(answers)} version(s) stayed: {worst.detail or worst.code}"
    )

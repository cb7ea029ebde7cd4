"""How a probe names its key, following how the plan will name its objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from safedelete.declare.targets import Mode
from safedelete.s3.versioning import BucketState

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

IMPOSSIBLE: Final = '"00000000000000000000000000000000-0"'
"""An ETag that no object has."""

Way: TypeAlias = Literal["impossible-etag", "any-etag", "null-version", "plain"]


def way_of(state: BucketState, mode: Mode | None, *, knows_etags: bool) -> Way:
    """Return how a probe must name its key to ask for the same permission as the plan's deletes."""
    if state.versioning == "off":
        # A condition needs s3:GetObject as well, so it is probed exactly where the plan's deletes will carry one.
        return "impossible-etag" if knows_etags else "plain"
    return "null-version" if mode == "purge" else "any-etag"


def actions_of(way: Way) -> list[str]:
    """Return the IAM actions that a delete of this kind needs."""
    match way:
        case "impossible-etag":
            return ["s3:DeleteObject", "s3:GetObject"]
        case "null-version":
            return ["s3:DeleteObjectVersion"]
        case "any-etag" | "plain":
            return ["s3:DeleteObject"]


def identifier(key: str, way: Way) -> ObjectIdentifierTypeDef:
    """Name a key in a DeleteObjects request."""
    match way:
        case "null-version":
            return {"Key": key, "VersionId": "null"}
        case "impossible-etag":
            return {"Key": key, "ETag": IMPOSSIBLE}
        case "any-etag":
            return {"Key": key, "ETag": "*"}
        case "plain":
            return {"Key": key}

"""What a store's errors mean, and how to tell a person about them.

Error codes are compared by name where the store gives one and by HTTP status where it does not: an answer to HEAD has
no body, some stores leave ``Error`` or ``Message`` out, and a proxy in between knows nothing of S3.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)
from botocore.parsers import ResponseParserError

from safedelete.errors import StoreError

SDK_ERRORS: Final = (
    ClientError,
    BotoCoreError,
    ResponseParserError,
    OSError,
    RuntimeError,
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
)
"""Everything boto3 raises for a request that failed, was not understood, or was never sent.

It looks into an answer without asking whether what it looks for is in it: an empty ``<Error/>`` is an AttributeError, a size
that is no number a ValueError, two of them or an element within an error's code a TypeError, an encoded listing with an entry
that has no key a KeyError.

An endpoint that answers all requests with a redirect makes it ask for the bucket's region in a circle, until it runs out of
stack; and new credentials that have expired already are a RuntimeError.
"""

NOT_SENT: Final = (NoCredentialsError, PartialCredentialsError, ParamValidationError)
"""Raised before anything goes on the wire."""


class Meaning(StrEnum):
    """What an error says about the one key, or the request, that it is about."""

    ABSENT = "absent"
    """The key or version is not there."""
    CHANGED = "changed"
    """The condition did not hold: the object is another than the one named."""
    DENIED = "denied"
    """The caller may not; asking again does not help."""
    BUSY = "busy"
    """Turned away before anything was done; worth another try."""
    DOUBT = "doubt"
    """May or may not have been done; worth another try."""
    FAILED = "failed"
    """Not done, and asking again does not help."""


_ABSENT: Final = frozenset({"NoSuchKey", "NoSuchVersion"})
_CHANGED: Final = frozenset({"PreconditionFailed", "412", "412 Precondition Failed"})
_DENIED: Final = frozenset(
    {
        "AccessDenied",
        "403",
        "Forbidden",
        "AllAccessDisabled",
        "AccountProblem",
        "UnauthorizedAccess",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "TokenRefreshRequired",
        "RequestExpired",
    }
)
_BUSY: Final = frozenset(
    {
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TooManyRequests",
        "OperationAborted",
        "ConditionalRequestConflict",
        "503",
        "429",
    }
)
_DOUBT: Final = frozenset({"InternalError", "RequestTimeout", "InternalFailure", "500", "502", "504"})

THROTTLED: Final = _BUSY - {"OperationAborted", "ConditionalRequestConflict"}
"""Codes by which a store asks for fewer requests."""


def meaning_of(code: str, status: int = 0) -> Meaning:
    """Return what an error code says; an unknown code of an unknown status is a failure that is not retried."""
    for codes, meaning in (
        (_ABSENT, Meaning.ABSENT),
        (_CHANGED, Meaning.CHANGED),
        (_DENIED, Meaning.DENIED),
        (_BUSY, Meaning.BUSY),
        (_DOUBT, Meaning.DOUBT),
    ):
        if code in codes:
            return meaning
    if status == 403:
        return Meaning.DENIED
    if status in {429, 503}:
        return Meaning.BUSY
    # 501 is how a store says that it does not know the request at all, so nothing can have been done.
    return Meaning.DOUBT if status >= 500 and status != 501 else Meaning.FAILED


def status_of(error: Exception) -> int:
    """Return the HTTP status of an answer, 0 where there was none."""
    if not isinstance(error, ClientError):
        return 0
    metadata: Any = error.response.get("ResponseMetadata") or {}
    status = metadata.get("HTTPStatusCode")
    return status if isinstance(status, int) else 0


def code_of(error: Exception) -> str:
    """Return a short stable word for an error: the store's code, else the HTTP status, else the exception's name."""
    if isinstance(error, ClientError):
        body: Any = error.response.get("Error") or {}
        code = body.get("Code")
        return str(code) if code else str(status_of(error) or "ClientError")
    # The HTTP layer wraps it where it runs out of stack in there.
    return "RecursionError" if "recursion depth" in str(error) else type(error).__name__


def detail_of(error: Exception) -> str:
    """Return the store's own words, shortened; never empty."""
    if isinstance(error, ClientError):
        body: Any = error.response.get("Error") or {}
        message = body.get("Message")
        if message:
            return str(message)[:300]
    return (str(error) or type(error).__name__)[:300]


_HINTS: Final = {
    "NoSuchBucket": "Check the bucket's name, and that the endpoint and the account are the right ones.",
    "404": "Check the bucket's name, and that the endpoint and the account are the right ones.",
    "AccessDenied": "Grant the caller this action, or use another identity.",
    "403": "Grant the caller this action, or use another identity.",
    "InvalidAccessKeyId": "The endpoint does not know this access key: check the credentials and the endpoint.",
    "SignatureDoesNotMatch": "The secret key does not belong to the access key, or a proxy rewrites the request.",
    "ExpiredToken": "The session's credentials have expired: renew them and run again.",
    "RequestTimeTooSkewed": "This machine's clock is off: set it, then run again.",
    "PermanentRedirect": "The bucket is in another region: set AWS_DEFAULT_REGION to the bucket's own.",
    "301": "The bucket is in another region: set AWS_DEFAULT_REGION to the bucket's own.",
    "AuthorizationHeaderMalformed": "The bucket is in another region: set AWS_DEFAULT_REGION to the bucket's own.",
    "NoCredentialsError": "Set AWS credentials (environment, profile or role), or declare client=.",
    "PartialCredentialsError": "Both the access key and the secret key are needed.",
    "EndpointConnectionError": "Check AWS_ENDPOINT_URL and that the store is up and reachable from here.",
    "ConnectTimeoutError": "Check AWS_ENDPOINT_URL and that the store is up and reachable from here.",
    "RecursionError": "Every request is redirected: check AWS_ENDPOINT_URL, and set AWS_DEFAULT_REGION to the bucket's own.",
    "AttributeError": "Something that is not S3 answered: check AWS_ENDPOINT_URL and any proxy in between.",
    "ResponseParserError": "Something that is not S3 answered: check AWS_ENDPOINT_URL and any proxy in between.",
    "TypeError": "Something that is not S3 answered: check AWS_ENDPOINT_URL and any proxy in between.",
    "ValueError": "Something that is not S3 answered: check AWS_ENDPOINT_URL and any proxy in between.",
    "KeyError": "Something that is not S3 answered: check AWS_ENDPOINT_URL and any proxy in between.",
}


def store_error(error: Exception, doing: str) -> StoreError:
    """Make a StoreError that says what was being done, what the store answered, and what to do next.

    Args:
        error: What boto3 raised.
        doing: For example ``Listing s3://acme/tmp/``.
    """
    code = code_of(error)
    unreachable = isinstance(error, (EndpointConnectionError, ConnectTimeoutError))
    verb = "did not reach the store" if unreachable else "failed"
    return StoreError(
        f"{doing} {verb}: {code}: {detail_of(error)}",
        hint=_HINTS.get(code, "Look at the store's answer; run again once it is repaired."),
    )

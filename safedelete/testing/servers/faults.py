"""The ways an object store answers wrongly, for the stub store to repeat on demand.

A fault is a function of the request and of ``honest``, which does what was asked and returns the true answer. A fault
that does not call it lies about nothing having happened to objects that are still there; :func:`applied` makes the
other half of each failure, where the objects are gone and the answer got lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias
from xml.sax.saxutils import escape

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
XML = {"Content-Type": "application/xml"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One object named in a DeleteObjects request."""

    key: str
    version: str | None = None
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived.

    Attributes:
        number: Counts from 1, over all operations.
        operation: The API's name: ``DeleteObjects``, ``HeadObject`` and so on.
        method: HTTP method.
        path: Path as on the wire, still percent-encoded.
        query: Query parameters, decoded.
        headers: Header fields, lower-case names.
        body: Body, undecoded.
        bucket: Bucket, empty for the service itself.
        key: Key, empty for a bucket.
        entries: What a DeleteObjects request names, in its order.
        malformed: Its body is not the XML it should be.
    """

    number: int
    operation: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    bucket: str
    key: str
    entries: tuple[Entry, ...] = ()
    malformed: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys it is about."""
        if self.operation == "DeleteObjects":
            return tuple(entry.key for entry in self.entries)
        return (self.key,) if self.key else ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back over the wire.

    Attributes:
        status: HTTP status; 0 sends nothing at all and resets the connection.
        body: Body.
        headers: Further header fields.
        announced: Content-Length to claim; None for the true one.
        delay: Seconds to wait first.
        drip: Seconds to wait before each byte of the body.
    """

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    announced: int | None = None
    delay: float = 0.0
    drip: float = 0.0


class Honest(Protocol):
    """Carries the request out."""

    def __call__(self, *, refuse: Mapping[str, str] = {}) -> Answer:
        """Return the true answer.

        Args:
            refuse: In DeleteObjects, the keys to keep, with the error code each is answered with.
        """


Fault: TypeAlias = Callable[[Request, Honest], Answer]


def error_body(code: str, message: str = "injected") -> bytes:
    """Return the body of an S3 error."""
    return f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'.encode()


def delete_result(*, deleted: tuple[str, ...] = (), errors: Mapping[str, str] | None = None) -> bytes:
    """Return the body of a DeleteObjects answer.

    Args:
        deleted: Keys said to be deleted.
        errors: Error code by key.
    """
    gone = "".join(f"<Deleted><Key>{escaped(key)}</Key></Deleted>" for key in deleted)
    kept = "".join(
        f"<Error><Key>{escaped(key)}</Key><Code>{code}</Code><Message>injected</Message></Error>"
        for key, code in (errors or {}).items()
    )
    return f'<?xml version="1.0" encoding="UTF-8"?><DeleteResult xmlns="{NAMESPACE}">{gone}{kept}</DeleteResult>'.encode()


def escaped(text: str) -> str:
    """Return text for XML; a carriage return survives only as a reference."""
    return escape(text, {"\r": "&#xD;", "\n": "&#xA;"})


def answering(
    status: int,
    body: bytes = b"",
    *,
    announced: int | None = None,
    delay: float = 0.0,
    content: str = "application/xml",
) -> Fault:
    """Return a fault that gives this answer and does nothing."""
    answer = Answer(status, body, {"Content-Type": content}, announced, delay)
    return lambda _request, _honest: answer


def refusing(status: int, code: str) -> Fault:
    """Return a fault that refuses the whole request with an S3 error."""
    return answering(status, error_body(code))


def applied(fault: Fault) -> Fault:
    """Return the same fault after the request was carried out: the objects are gone, the answer is wrong."""

    def carried_out(request: Request, honest: Honest) -> Answer:
        honest()
        return fault(request, honest)

    return carried_out


def key_errors(errors: Mapping[str, str]) -> Fault:
    """Return a fault that refuses these keys, each with its code, and deletes the other keys of the request."""

    def refuse_some(request: Request, honest: Honest) -> Answer:
        hit = [errors[key] for key in request.keys if key in errors]
        if not hit or request.operation == "DeleteObjects":
            return honest(refuse=errors)
        return Answer(403 if hit[0] == "AccessDenied" else 503, error_body(hit[0]), XML)

    return refuse_some


def _first_key_only(request: Request, _honest: Honest) -> Answer:
    return Answer(200, delete_result(deleted=request.keys[:1]), XML)


def _truncated(request: Request, _honest: Honest) -> Answer:
    return Answer(200, _half(request), XML)


def _cut(request: Request, _honest: Honest) -> Answer:
    half = _half(request)
    return Answer(200, half, XML, announced=len(half) + 500)


def _half(request: Request) -> bytes:
    whole = delete_result(deleted=request.keys)
    return whole[: whole.index(b"</Deleted>") + len(b"</Deleted><De")] if request.keys else whole[:-5]


def _stranger(request: Request, _honest: Honest) -> Answer:
    return Answer(200, delete_result(deleted=(*request.keys[:-1], "a-key-nobody-asked-for")), XML)


def _twice(request: Request, _honest: Honest) -> Answer:
    return Answer(200, delete_result(deleted=(*request.keys[:-1], *request.keys[:1])), XML)


def _both(request: Request, _honest: Honest) -> Answer:
    errors = dict.fromkeys(request.keys[:1], "InternalError")
    return Answer(200, delete_result(deleted=request.keys, errors=errors), XML)


def _transient(request: Request, honest: Honest) -> Answer:
    codes = ("InternalError", "SlowDown")
    return honest(refuse={key: codes[i % 2] for i, key in enumerate(request.keys[1:])})


def delayed(seconds: float) -> Fault:
    """Return a fault that carries the request out after a pause."""

    def wait(_request: Request, honest: Honest) -> Answer:
        answer = honest()
        return replace(answer, delay=seconds)

    return wait


def dripping(seconds: float) -> Fault:
    """Return a fault that carries the request out, and sends its answer a byte at a time."""
    return lambda _request, honest: replace(honest(), drip=seconds)


SLOW_DOWN = refusing(503, "SlowDown")
RESET = answering(0)
TIMEOUT = answering(200, delete_result(), delay=3600.0)
"""Answers only when the stub stops: the client has long given up."""

LIES: Mapping[str, Fault] = {
    "200 empty body": answering(200),
    "200 whitespace": answering(200, b"   "),
    "200 empty DeleteResult": answering(200, delete_result()),
    "200 truncated XML": _truncated,
    "200 cut connection": _cut,
    "200 HTML page": answering(200, b"<html><body>Please sign in</body></html>", content="text/html"),
    "200 JSON": answering(200, b'{"ok": true}', content="application/json"),
    "200 first key only": _first_key_only,
    "200 stranger key": _stranger,
    "200 duplicate key": _twice,
    "200 deleted and error": _both,
    "200 transient key errors": _transient,
    "200 Error SlowDown": answering(200, error_body("SlowDown")),
    "200 Error AccessDenied": answering(200, error_body("AccessDenied")),
    "204 no body": answering(204),
    "400 MalformedXML": refusing(400, "MalformedXML"),
    "403 AccessDenied": refusing(403, "AccessDenied"),
    "503 SlowDown": SLOW_DOWN,
    "500 InternalError": refusing(500, "InternalError"),
    "reset": RESET,
    "timeout": TIMEOUT,
}
"""Every wrong answer to DeleteObjects that is known from the wild, by name, for ``pytest.mark.parametrize``.

After none of them may a key be called deleted on the store's word alone, except those "200 transient key errors" and
"200 first key only" name. "503 then ok" is the script ``(SLOW_DOWN, None)``.
"""

"""While a StrictS3 is started nothing that botocore sends leaves this machine, and nothing reaches a laxer S3."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from safedelete.errors import ConfigError

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
"""Hosts that may be reached all the same: servers that a test has started."""

_open: Final[list[tuple[Any, str, Any]]] = []
"""What stands where the bars are now: class, method, function."""


def bar(answered: str) -> None:
    """Refuse what a client sends that was made before, and so has no handler of ours. It would delete in the real S3.

    One that was made after moto was imported would be answered by moto instead: as lax as it is, and without a fault.

    Args:
        answered: The URL that requests have which were answered already.
    """
    from botocore.httpsession import URLLib3Session
    from moto.core.models import botocore_stubber

    lax = type(botocore_stubber)
    send, stub = URLLib3Session.send, lax.__call__

    def barred_send(session: Any, request: Any) -> Any:
        _refuse(request)
        return send(session, request)

    def barred_stub(self: Any, event_name: str, request: Any, **more: Any) -> Any:
        if event_name.startswith("before-send.s3.") and request.url != answered:
            _refuse(request)
        return stub(self, event_name, request, **more)

    _replace(URLLib3Session, "send", barred_send)
    _replace(lax, "__call__", barred_stub)


def unbar() -> None:
    """Let requests out again."""
    while _open:
        owner, name, honest = _open.pop()
        setattr(owner, name, honest)


def _replace(owner: Any, name: str, barred: Any) -> None:
    _open.append((owner, name, getattr(owner, name)))
    setattr(owner, name, barred)


def _refuse(request: Any) -> None:
    host = urlsplit(request.url).hostname or ""
    if host not in LOOPBACK:
        raise ConfigError(
            f"While StrictS3 is started no request leaves this machine: {request.method} to {host} was not sent.",
            hint="The client was made before it was started. Make it afterwards, or hand it over: store.adopt(client).",
        )

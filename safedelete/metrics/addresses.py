"""Addresses, as they may be shown, and requests to them."""

from __future__ import annotations

import base64
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from safedelete.errors import ConfigError

SECONDS: Final = 5.0


def web_address(text: str, variable: str) -> str:
    """Return an http or https address.

    Raises:
        ConfigError: It is none.
    """
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        known = False
    if not known:
        raise ConfigError(
            f"${variable}: {without_password(text)!r} is not an http or https address.",
            hint="Write it whole, https://host/path.",
        )
    return text


def without_password(url: str) -> str:
    """Return an address without what only its owner may know: user, password, path and query.

    Ping and webhook addresses carry their secret in the path.
    """
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "…"
    if not parts.hostname:
        return "…" if "@" in url else url.split(":", 1)[0]
    return urlunsplit((parts.scheme, parts.hostname + port, "/…" if len(parts.path) > 1 else "", "", ""))


def without_credentials(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return an address without its user and password, and these."""
    parts = urlsplit(url)
    if parts.username is None:
        return url, None
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return bare, (unquote(parts.username), unquote(parts.password or ""))


def post(url: str, body: bytes, kind: str, *, seconds: float = SECONDS) -> None:
    """Send a body.

    Args:
        url: An http or https address; user and password in it go as basic authentication.
        body: What to send.
        kind: Its content type.
        seconds: How long connecting, and each read, may take.

    Raises:
        OSError: Nobody answered, or with a status of 400 or more.
    """
    headers = {"Content-Type": kind, "User-Agent": "safedelete"}
    url, credentials = without_credentials(url)
    if credentials is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(credentials).encode()).decode()
    # The scheme was checked when the variable was read.
    with urlopen(Request(url, data=body, headers=headers, method="POST"), timeout=seconds) as answer:  # noqa: S310
        answer.read(1024)

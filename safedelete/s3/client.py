"""The connection to one S3 endpoint: clients with bounded waiting, whose deletes are never resent unasked.

Reading and deleting use two clients. The SDK may repeat a read by itself; a repeated delete must first ask the gate
whether this process still holds its lease, which the SDK cannot know. Where the user declared a client of their own,
or the SDK resends for another reason (a redirect to the bucket's region), a hook asks the gate instead.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import parse_qs, urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, NoCredentialsError

from safedelete.errors import ConfigError
from safedelete.ports import Gate
from safedelete.s3.answers import install_checks
from safedelete.s3.bounded import ANSWER_TIMEOUT, install_bound
from safedelete.s3.codes import SDK_ERRORS, store_error
from safedelete.s3.fastdelete import install_fast_delete
from safedelete.s3.fastlist import install_fast_list

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_sts.client import STSClient

Style: TypeAlias = Literal["auto", "path", "virtual"]
"""How a request names its bucket."""

USER_AGENT: Final = "safedelete"
CONNECT_TIMEOUT: Final = 5.0
READ_TIMEOUT: Final = 30.0
_DELETES: Final = ("DeleteObjects", "DeleteObject")
_ROLE_SESSION: Final = re.compile(r"^(arn:[a-z0-9-]+:sts::\d+:assumed-role/[^/]+)/.+$")

_asking: ContextVar[Gate | None] = ContextVar("safedelete_s3_gate", default=None)


@dataclass(frozen=True, slots=True)
class Connection:
    """How one S3 endpoint is reached.

    Attributes:
        reader: Lists and heads; may retry by itself.
        deleter: Deletes; sends each request once.
        endpoint: Scheme, host and port.
        region: Region name; empty where none is configured.
        session: The session the clients were made from; None for a client that the user declared.
    """

    reader: S3Client
    deleter: S3Client
    endpoint: str
    region: str
    session: boto3.session.Session | None = None

    @property
    def access_key(self) -> str:
        """Return the id of the access key that signs now; never its secret."""
        return _access_key(self.reader)

    def describe_caller(self) -> str:
        """Return who deletes: the caller's ARN, or the access key's id where the store has no STS. Reads only.

        A role's session name is left out: it changes from task to task, while the permissions are the role's.

        Raises:
            StoreError: There are no usable credentials, or AWS could not be asked whose they are. Another answer in
                its place would make a sealed plan's caller seem to have changed.
        """
        try:
            key = self.access_key
        except (BotoCoreError, ValueError) as error:
            raise store_error(error, "Finding AWS credentials") from error
        at_key = f"access-key:{key} at {self.endpoint}"
        aws = is_aws(self.endpoint)
        if not aws and (self.session is None or not _names_sts(self.session)):
            # Amazon's STS has no business with a private store's access key id.
            return at_key
        try:
            arn = str(self._sts().get_caller_identity().get("Arn") or "")
        except SDK_ERRORS as error:
            if aws:
                raise store_error(error, "Asking AWS (sts:GetCallerIdentity) who the caller is") from error
            # A store without STS answers this with anything at all. The access key's id identifies the caller too,
            # and a key that does not work fails at the first listing with a message of its own.
            return at_key
        return _ROLE_SESSION.sub(r"\1", arn) or at_key

    def _sts(self) -> STSClient:
        config = Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=10,
            retries={"total_max_attempts": 3, "mode": "standard"},
        )
        client: STSClient = self.client_for("sts", config)
        return client

    def client_for(self, service: Literal["sts", "iam"], config: Config) -> Any:
        """Return a client of another service with the same credentials; sends nothing."""
        region = self.region if self.region and self.region != "aws-global" else "us-east-1"
        if self.session is not None:
            return self.session.client(service, region_name=region, config=config)
        # A declared client carries its credentials but not the session they came from.
        credentials: Any = getattr(self.reader, "_get_credentials", lambda: None)()
        if credentials is None:
            raise NoCredentialsError
        frozen = credentials.get_frozen_credentials()
        return boto3.session.Session().client(
            service,
            region_name=region,
            aws_access_key_id=frozen.access_key,
            aws_secret_access_key=frozen.secret_key,
            aws_session_token=frozen.token,
            config=config,
        )


def connect(
    declared: S3Client | None = None,
    *,
    endpoint_url: str | None = None,
    region: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    connect_timeout: float = CONNECT_TIMEOUT,
    read_timeout: float = READ_TIMEOUT,
    answer_timeout: float = ANSWER_TIMEOUT,
    connections: int = 16,
    content_md5: bool = False,
    owner: str | None = None,
    path_style: bool | None = None,
) -> Connection:
    """Make the clients for one endpoint; sends nothing.

    Args:
        declared: The user's own client, used as it is for reading and deleting.
        endpoint_url: An S3-compatible endpoint; else ``$AWS_ENDPOINT_URL_S3`` or ``$AWS_ENDPOINT_URL``, else AWS.
        region: Region; else the default chain, else ``us-east-1``, which stores of one region accept.
        access_key: Explicit credentials instead of the default chain, for tests and probes.
        secret_key: Its secret.
        connect_timeout: Seconds, above 0.
        read_timeout: Seconds between two bytes of an answer, above 0.
        answer_timeout: Seconds that a whole answer may take, above 0; a long one is given more. Not for ``declared``.
        connections: Most connections at a time.
        content_md5: Send Content-MD5 rather than a CRC32 with DeleteObjects, for stores that insist on it.
        owner: Account id that every bucket must belong to (``ExpectedBucketOwner``).
        path_style: Whether the bucket stands in the path; None for everywhere but on AWS.

    Raises:
        ConfigError: The endpoint or region cannot be used.
    """
    if declared is not None:
        client_region = declared.meta.region_name
        connection = Connection(declared, declared, declared.meta.endpoint_url, client_region or "")
    else:
        connection = _own(
            endpoint_url,
            region,
            access_key,
            secret_key,
            connect_timeout,
            read_timeout,
            answer_timeout,
            connections,
            None if path_style is None else "path" if path_style else "virtual",
        )
    for operation in _DELETES:
        connection.deleter.meta.events.register(
            f"request-created.s3.{operation}", _ask_again, unique_id=f"safedelete-gate-{operation}"
        )
    for client in (connection.reader, connection.deleter):
        install_checks(client)
        if content_md5:
            client.meta.events.register("before-sign.s3.DeleteObjects", _send_md5, unique_id="safedelete-md5")
        if owner is not None:
            client.meta.events.register(
                "before-parameter-build.s3", _Expect(owner).build, unique_id=f"safedelete-owner-{owner}"
            )
    return connection


@contextmanager
def gated(gate: Gate) -> Iterator[None]:
    """Have the gate asked before each resend that the SDK makes inside; the first sending is the caller's to ask for."""
    token = _asking.set(gate)
    try:
        yield
    finally:
        _asking.reset(token)


def renew(client: S3Client) -> None:
    """Fetch new credentials where the old ones are about to expire; whoever fails is told so by its request.

    Called before the gate is asked: fetching them takes its time, which may be longer than a lease lasts.
    """
    credentials: Any = getattr(client, "_get_credentials", lambda: None)()
    if credentials is not None:
        with suppress(*SDK_ERRORS):
            credentials.get_frozen_credentials()


def _own(
    endpoint_url: str | None,
    region: str | None,
    access_key: str | None,
    secret_key: str | None,
    connect_timeout: float,
    read_timeout: float,
    answer_timeout: float,
    connections: int,
    declared: Style | None,
) -> Connection:
    base = botocore.session.Session()
    plain = boto3.session.Session(
        botocore_session=base,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name=region,
    )
    raw = botocore.session.Session()
    raw.register_component("data_loader", base.get_component("data_loader"))
    # Two thirds of what a listing costs goes into parsing timestamps; this leaves them as the text they were.
    raw.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_as_sent)
    if access_key is None:
        # Credential providers read the expiry of what they fetch, so they keep a session that parses timestamps.
        raw.register_component("credential_provider", base.get_component("credential_provider"))
    session = boto3.session.Session(
        botocore_session=raw,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name=plain.region_name or "us-east-1",
    )

    def make(attempts: int, style: Style) -> S3Client:
        config = Config(
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
            max_pool_connections=connections,
            retries={"total_max_attempts": attempts, "mode": "standard"},
            user_agent_extra=USER_AGENT,
            s3={"addressing_style": style},
        )
        return session.client("s3", config=config, endpoint_url=endpoint_url)

    try:
        style: Style = declared or "auto"
        deleter = make(1, style)
        if declared is None and not is_aws(deleter.meta.endpoint_url):
            # Few stores of one's own have a DNS name for every bucket.
            style = "path"
            deleter = make(1, style)
        reader = make(4, style)
    except (BotoCoreError, ValueError) as error:
        raise ConfigError(
            f"The S3 client could not be made: {error}.",
            hint="Check AWS_ENDPOINT_URL (with its scheme, http:// or https://), AWS_DEFAULT_REGION and AWS_PROFILE.",
        ) from error
    for client in (reader, deleter):
        install_bound(client, answer_timeout)
    install_fast_list(reader)
    install_fast_delete(deleter)
    return Connection(reader, deleter, reader.meta.endpoint_url, reader.meta.region_name or "", plain)


def is_aws(endpoint: str) -> bool:
    """Whether an endpoint is Amazon's own."""
    host = urlsplit(endpoint).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _names_sts(session: boto3.session.Session) -> bool:
    """Whether an STS other than Amazon's is configured, by environment or profile."""
    try:
        endpoint = session.client("sts", region_name="us-east-1").meta.endpoint_url
    except (BotoCoreError, ValueError):
        return False
    return not is_aws(endpoint)


def _as_sent(value: Any) -> Any:
    return value


def _access_key(client: S3Client) -> str:
    # Signing a URL sends nothing, and is the one public way to learn which key a client signs with.
    url = client.generate_presigned_url("list_objects_v2", Params={"Bucket": "bucket"}, ExpiresIn=1)
    query = parse_qs(urlsplit(url).query)
    found = query.get("X-Amz-Credential") or query.get("AWSAccessKeyId") or [""]
    return found[0].partition("/")[0]


def _ask_again(request: Any, **_: Any) -> None:
    gate = _asking.get()
    if gate is not None and request.context.get("retries", {}).get("attempt", 1) > 1:
        gate()


def _send_md5(request: Any, **_: Any) -> None:
    for name in [
        n for n in request.headers if n.lower().startswith(("x-amz-checksum", "x-amz-sdk-checksum"))
    ]:
        del request.headers[name]
    body = request.body if isinstance(request.body, bytes) else bytes(request.data or b"")
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    request.headers["Content-MD5"] = base64.b64encode(digest).decode("ascii")


@dataclass(frozen=True, slots=True)
class _Expect:
    owner: str

    def build(self, params: Any, model: Any, **_: Any) -> None:
        if model.input_shape is not None and "ExpectedBucketOwner" in model.input_shape.members:
            params.setdefault("ExpectedBucketOwner", self.owner)

"""A connection waits for a bounded time, names its caller, and never shows a secret."""

from __future__ import annotations

from typing import Any

import pytest

from safedelete import S3Endpoint
from safedelete.errors import ConfigError, StoreError
from safedelete.s3.client import connect, is_aws
from safedelete.testing.servers import ADMIN, Moto, SeaweedFS, StubS3
from safedelete.testing.servers.faults import answering
from safedelete.wiring.connect import connection_to


def test_the_endpoint_comes_from_the_environment(stub: StubS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", stub.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    stub.put("acme", "a")
    connection = connect()
    assert connection.endpoint == stub.endpoint
    assert connection.reader.list_objects_v2(Bucket="acme")["KeyCount"] == 1
    assert stub.requests[0].path == "/acme"


def test_on_aws_the_bucket_is_in_the_host_name() -> None:
    connection = connect(access_key="k", secret_key="s", region="eu-central-1")
    assert is_aws(connection.endpoint)
    url = connection.reader.generate_presigned_url("get_object", Params={"Bucket": "acme", "Key": "a"})
    assert url.startswith("https://acme.s3.")
    assert connection.region == "eu-central-1"


@pytest.mark.parametrize(
    ("style", "starts"),
    [
        (None, "https://s3.acme.example/bkt/"),
        (True, "https://s3.acme.example/bkt/"),
        (False, "https://bkt.s3.acme.example/"),
    ],
)
def test_a_path_holds_the_bucket_on_other_hosts_unless_said(style: bool | None, starts: str) -> None:
    connection = connect(
        endpoint_url="https://s3.acme.example", access_key="k", secret_key="s", path_style=style
    )
    for client in (connection.reader, connection.deleter):
        url = client.generate_presigned_url("get_object", Params={"Bucket": "bkt", "Key": "a"})
        assert url.startswith(starts)


def test_on_aws_a_path_holds_the_bucket_where_that_was_said() -> None:
    connection = connect(access_key="k", secret_key="s", region="eu-central-1", path_style=True)
    url = connection.deleter.generate_presigned_url("get_object", Params={"Bucket": "acme", "Key": "a"})
    assert url.startswith("https://s3.eu-central-1.amazonaws.com/acme/")


def test_a_declared_endpoint_is_what_a_purge_reaches(stub: StubS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    stub.put("acme", "a")
    declared = S3Endpoint(url=stub.endpoint, region="xy-1", content_md5=True, owner="123456789012")
    connection = connection_to(declared)
    assert (connection.endpoint, connection.region) == (stub.endpoint, "xy-1")
    connection.deleter.delete_objects(Bucket="acme", Delete={"Objects": [{"Key": "a"}]})
    (request,) = stub.requests
    assert "content-md5" in request.headers
    assert not [name for name in request.headers if "checksum" in name]
    assert request.headers["x-amz-expected-bucket-owner"] == "123456789012"
    assert connection_to(None).endpoint == "http://127.0.0.1:1"


def test_content_md5_is_taken_by_a_real_store(weed: SeaweedFS, bucket: str) -> None:
    weed.create_bucket(bucket)
    weed.client().put_object(Bucket=bucket, Key="a", Body=b"x")
    connection = connect(
        endpoint_url=weed.endpoint,
        access_key=ADMIN.access_key,
        secret_key=ADMIN.secret_key,
        content_md5=True,
        path_style=True,
    )
    answer = connection.deleter.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "a"}]})
    assert [item["Key"] for item in answer["Deleted"]] == ["a"]
    assert connection.reader.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


@pytest.mark.parametrize(
    "host", ["http://127.0.0.1:9", "https://minio.example.org", "https://amazonaws.com.evil.org"]
)
def test_other_hosts_are_not_aws(host: str) -> None:
    assert not is_aws(host)


def test_an_endpoint_without_a_scheme_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="could not be made") as caught:
        connect(endpoint_url="localhost:9000", access_key="k", secret_key="s")
    assert "AWS_ENDPOINT_URL" in caught.value.hint


def test_waiting_is_bounded_and_deletes_are_sent_once() -> None:
    connection = connect(
        endpoint_url="http://127.0.0.1:9",
        access_key="k",
        secret_key="s",
        connect_timeout=1.5,
        read_timeout=2.5,
    )
    for client in (connection.reader, connection.deleter):
        config: Any = client.meta.config
        assert (config.connect_timeout, config.read_timeout) == (1.5, 2.5)
        assert "safedelete" in config.user_agent_extra
    deleting: Any = connection.deleter.meta.config
    assert deleting.retries["total_max_attempts"] == 1


def test_the_caller_is_an_arn_where_there_is_sts(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    connection = connect()
    assert connection.access_key == "AKIAEXAMPLE"
    assert connection.describe_caller().startswith("arn:aws:sts::")


def test_a_roles_session_is_left_out_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import botocore.client

    def answer(self: Any, operation: str, parameters: Any) -> Any:
        assert operation == "GetCallerIdentity"
        return {"Arn": "arn:aws:sts::123456789012:assumed-role/purger/task-0815"}

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", answer)
    connection = connect(access_key="ASIA", secret_key="hush")
    assert connection.describe_caller() == "arn:aws:sts::123456789012:assumed-role/purger"


def test_amazon_is_not_asked_about_a_private_stores_key(
    stub: StubS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    import botocore.httpsession

    sent: list[str] = []

    def send(self: Any, request: Any) -> Any:
        sent.append(request.url)
        raise OSError("nothing may be sent")

    monkeypatch.setattr(botocore.httpsession.URLLib3Session, "send", send)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", stub.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "private")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    assert connect().describe_caller() == f"access-key:private at {stub.endpoint}"
    assert sent == []


@pytest.mark.parametrize("declared", [False, True])
def test_a_caller_that_aws_was_not_asked_for_is_an_error(
    monkeypatch: pytest.MonkeyPatch, *, declared: bool
) -> None:
    import boto3
    import botocore.client
    from botocore.exceptions import EndpointConnectionError

    def fail(self: Any, operation: str, parameters: Any) -> Any:
        raise EndpointConnectionError(endpoint_url="https://sts")

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", fail)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    client = boto3.client("s3", region_name="eu-west-1") if declared else None
    with pytest.raises(StoreError, match="GetCallerIdentity"):
        connect(client).describe_caller()


def test_without_sts_the_caller_is_the_access_key(weed: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", weed.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "sdrunner")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sdrunner-secret-0001")
    caller = connect().describe_caller()
    assert caller == f"access-key:sdrunner at {weed.endpoint}"
    assert "secret" not in caller


@pytest.mark.parametrize("body", [b"", b"<html><body/></html>", b"{}", b"<a/>"])
def test_a_store_that_answers_sts_with_a_page_has_none(
    stub: StubS3, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", stub.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "private")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    stub.always(answering(200, body), operation="*")
    assert connect().describe_caller() == f"access-key:private at {stub.endpoint}"


def test_no_credentials_say_so(stub: StubS3) -> None:
    with pytest.raises(StoreError, match="NoCredentialsError") as caught:
        connect(endpoint_url=stub.endpoint).describe_caller()
    assert "credentials" in caught.value.hint


def test_a_declared_client_is_used_as_it_is(stub: StubS3) -> None:
    declared = stub.client()
    connection = connect(declared)
    assert connection.reader is declared
    assert connection.endpoint == stub.endpoint
    assert connection.describe_caller() == f"access-key:sdadmin at {stub.endpoint}"


def test_the_owner_is_expected_with_every_request(stub: StubS3) -> None:
    stub.put("acme", "a")
    connection = connect(endpoint_url=stub.endpoint, access_key="k", secret_key="s", owner="123456789012")
    connection.reader.head_object(Bucket="acme", Key="a")
    connection.deleter.delete_object(Bucket="acme", Key="a")
    assert [r.headers["x-amz-expected-bucket-owner"] for r in stub.requests] == ["123456789012"] * 2


def test_refreshed_credentials_keep_their_expiry(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing's raw timestamps must not reach the providers of credentials, which compute with theirs."""
    script = tmp_path / "creds.sh"
    script.write_text(
        '#!/bin/sh\necho \'{"Version":1,"AccessKeyId":"ASIAPROC","SecretAccessKey":"hush","SessionToken":"t",'
        '"Expiration":"2099-01-01T00:00:00Z"}\'\n'
    )
    script.chmod(0o755)
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = {script}\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    connection = connect()
    assert connection.access_key == "ASIAPROC"
    assert connection.region == "eu-west-1"


def test_a_session_of_the_users_own_is_not_changed(stub: StubS3) -> None:
    connect(endpoint_url=stub.endpoint, access_key="k", secret_key="s")
    stub.put("acme", "a")
    (found,) = stub.client().list_objects_v2(Bucket="acme")["Contents"]
    assert found["LastModified"].tzinfo is not None

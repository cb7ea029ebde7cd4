"""The suite itself: it cannot reach the host's accounts, and CI cannot pass by skipping."""

from __future__ import annotations

import os

import boto3
import pytest

from safedelete.testing.servers import ServerUnavailableError
from tests.backends import started
from tests.e2e.world import ROOT


class Missing:
    def start(self) -> Missing:
        raise ServerUnavailableError("There is no such program.", hint="Install it.")

    def stop(self) -> None:
        raise AssertionError("never started")


def test_a_missing_server_is_skipped_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no such program\. Install it\."), started(Missing):
        pass


def test_a_missing_server_fails_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI must have every server"), started(Missing):
        pass


def test_no_test_leaves_an_empty_file_in_the_repository() -> None:
    assert [path.name for path in ROOT.iterdir() if path.is_file() and not path.stat().st_size] == []


def test_the_hosts_credentials_are_out_of_reach() -> None:
    credentials = boto3.session.Session().get_credentials()
    assert credentials is not None
    assert (credentials.access_key, credentials.method) == ("testing", "env")
    assert not {"DATABASE_URL", "AWS_PROFILE", "AWS_ENDPOINT_URL", "PGHOST"} & os.environ.keys()

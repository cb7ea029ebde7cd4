"""What is said beside the proofs: IAM's simulation where it may be asked, and what no probe can see. It stops nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import boto3
import pytest
from botocore.stub import Stubber

from safedelete.core.item import ObjectRef
from safedelete.errors import StoreError
from safedelete.phases.preflight import require
from safedelete.ports import Proof, Verdict
from safedelete.s3 import advice
from safedelete.s3.advice import S3Adviser, principal_of
from safedelete.s3.client import Connection
from safedelete.testing.servers import StubS3
from tests.s3.support import FakeClock, reach

ROLE = "arn:aws:iam::123456789012:role/purger"
SAMPLE = [ObjectRef("acme", "a/1.jpg"), ObjectRef("acme", "b/2.jpg"), ObjectRef("other", "c/3.jpg")]


@pytest.fixture
def iam() -> Iterator[Stubber]:
    client: Any = boto3.session.Session().client(
        "iam", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y"
    )
    with Stubber(client) as stubber, mock.patch.object(advice, "iam_of", return_value=client):
        yield stubber


def advised(stub: StubS3, caller: str | Exception = ROLE, mode: Any = None) -> list[Proof]:
    effect: Any = {"side_effect": caller} if isinstance(caller, Exception) else {"return_value": caller}
    with mock.patch.object(Connection, "describe_caller", **effect):
        return list(S3Adviser(reach(stub), modes={"acme": mode}).probe(FakeClock().now(), SAMPLE))


def answered(iam: Stubber, *resources: dict[str, Any], action: str = "s3:DeleteObject") -> None:
    result = {
        "EvalActionName": action,
        "EvalResourceName": "arn:aws:s3:::acme/template",
        "EvalDecision": "implicitDeny",
        "ResourceSpecificResults": list(resources),
    }
    wanted = {
        "PolicySourceArn": ROLE,
        "ActionNames": [action],
        "ResourceArns": ["arn:aws:s3:::acme/a/object", "arn:aws:s3:::acme/b/object"],
    }
    iam.add_response("simulate_principal_policy", {"EvaluationResults": [result]}, wanted)


def decided(folder: str, decision: str, *policies: str) -> dict[str, Any]:
    statements = [{"SourcePolicyId": policy, "SourcePolicyType": "IAM Policy"} for policy in policies]
    return {
        "EvalResourceName": f"arn:aws:s3:::acme/{folder}object",
        "EvalResourceDecision": decision,
        "MatchedStatements": statements,
    }


def test_what_the_simulation_denies_is_a_warning_that_names_the_statement_and_stops_nothing(
    stub: StubS3, iam: Stubber
) -> None:
    answered(iam, decided("a/", "allowed", "Purge"), decided("b/", "explicitDeny", "KeepB"))
    found = advised(stub)
    (warning,) = [p for p in found if "WARNING" in p.detail]
    assert warning.subject == "s3:DeleteObject on s3://acme/b/"
    assert "KeepB (IAM Policy)" in warning.detail
    assert {p.verdict for p in found} == {Verdict.ADVICE}
    require(found)


def test_no_statement_and_a_boundary_are_told_apart(stub: StubS3, iam: Stubber) -> None:
    beyond = decided("b/", "implicitDeny") | {
        "PermissionsBoundaryDecisionDetail": {"AllowedByPermissionsBoundary": False}
    }
    answered(iam, decided("a/", "implicitDeny"), beyond)
    said = [p.detail for p in advised(stub) if "WARNING" in p.detail]
    assert "no statement allows it" in said[0]
    assert "boundary" in said[1]


def test_what_the_simulation_allows_is_no_permission(stub: StubS3, iam: Stubber) -> None:
    answered(iam, decided("a/", "allowed", "Purge"), decided("b/", "allowed", "Purge"))
    found = advised(stub)
    assert not any("WARNING" in p.detail for p in found)
    assert not any(p.verdict is Verdict.ALLOWED for p in found)


def test_a_purge_of_versions_asks_for_versions(stub: StubS3, iam: Stubber) -> None:
    answered(iam, decided("a/", "allowed"), decided("b/", "allowed"), action="s3:DeleteObjectVersion")
    advised(stub, mode="purge")
    iam.assert_no_pending_responses()


@pytest.mark.parametrize("code", ["AccessDenied", "NoSuchEntity"])
def test_a_caller_who_may_not_ask_is_told_so_quietly(stub: StubS3, iam: Stubber, code: str) -> None:
    iam.add_client_error("simulate_principal_policy", code, "no")
    found = advised(stub)
    assert f"not asked as {ROLE}: {code}" in found[0].detail
    assert found[0].verdict is Verdict.ADVICE
    require(found)


@pytest.mark.parametrize("caller", ["access-key:AK at http://127.0.0.1", StoreError("no STS")])
def test_a_store_without_iam_is_not_asked(stub: StubS3, iam: Stubber, caller: Any) -> None:
    found = advised(stub, caller)
    assert [p.subject for p in found] == ["blind spots on s3://acme/"]


@pytest.mark.parametrize(
    ("caller", "principal"),
    [
        ("arn:aws:sts::123456789012:assumed-role/purger", ROLE),
        ("arn:aws:sts::123456789012:assumed-role/purger/task-1", ROLE),
        ("arn:aws-cn:sts::1:assumed-role/x", "arn:aws-cn:iam::1:role/x"),
        ("arn:aws:iam::123456789012:user/team/ann", "arn:aws:iam::123456789012:user/team/ann"),
        ("arn:aws:iam::123456789012:root", None),
        ("arn:aws:sts::123456789012:federated-user/ann", None),
        ("access-key:AK at http://127.0.0.1:1", None),
    ],
)
def test_a_session_stands_for_its_role(caller: str, principal: str | None) -> None:
    assert principal_of(caller) == principal


def test_blind_spots_are_told_of_every_bucket_that_something_goes_from(stub: StubS3, iam: Stubber) -> None:
    found = advised(stub, "access-key:AK")
    assert "s3:ExistingObjectTag" in found[-1].detail
    assert "between the probe and the delete" in found[-1].detail
    assert list(S3Adviser(reach(stub), modes={"acme": None}).probe(FakeClock().now(), [])) == []


def test_iam_is_reached_with_the_stores_own_credentials(stub: StubS3) -> None:
    client = advice.iam_of(reach(stub))
    assert client.meta.service_model.service_name == "iam"

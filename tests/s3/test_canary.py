"""Whether a store honours a condition on ETag is proven by an object made for that, and nothing of it is left behind."""

from __future__ import annotations

from typing import Any

import pytest

from safedelete.core.item import ObjectRef
from safedelete.ports import Proof, Verdict
from safedelete.s3.canary import NAME, Conditions
from safedelete.s3.probe import S3Prober
from safedelete.s3.store import S3ObjectStore
from safedelete.testing.servers import ADMIN, READER, Moto, SeaweedFS, StubS3
from safedelete.testing.servers.faults import Request, answering, applied, delete_result, refusing
from tests.s3.support import FakeClock, reach


def proven(
    server: Any, bucket: str, *, wanted: bool | str = True, mode: Any = None, identity: Any = ADMIN
) -> tuple[Proof, Conditions]:
    conditions = Conditions()
    conditions.demand(bucket, wanted)
    prober = S3Prober(reach(server, identity), modes={bucket: mode}, conditions=conditions)
    proofs = prober.probe(FakeClock().now(), [ObjectRef(bucket, "d/a.txt", '"e"', None, 1)])
    found = [proof for proof in proofs if proof.subject.startswith("conditional")]
    assert len(found) <= 1
    if not found:
        return next(proof for proof in proofs if proof.stops), conditions
    return found[0], conditions


def trace(server: Any, bucket: str) -> list[str]:
    answer = server.client().list_object_versions(Bucket=bucket)
    entries = [*answer.get("Versions", ()), *answer.get("DeleteMarkers", ())]
    return [entry["Key"] for entry in entries if NAME in entry["Key"]]


@pytest.mark.parametrize("versioned", [False, True])
def test_a_store_that_compares_etags_is_proven_and_keeps_nothing(
    weed: SeaweedFS, bucket: str, versioned: bool
) -> None:
    weed.create_bucket(bucket, versioned=versioned)
    mode = "marker" if versioned else None
    found, conditions = proven(weed, bucket, mode=mode)
    assert found.verdict is Verdict.ALLOWED, found
    assert bucket in conditions.proven
    assert trace(weed, bucket) == []


@pytest.mark.parametrize("versioned", [False, True])
def test_a_store_that_ignores_the_condition_in_one_request_is_refused_and_keeps_nothing(
    moto: Moto, bucket: str, versioned: bool
) -> None:
    moto.create_bucket(bucket, versioned=versioned)
    found, conditions = proven(moto, bucket, mode="marker" if versioned else None)
    assert found.verdict is Verdict.DENIED
    assert "ignores the condition in DeleteObjects:" in found.detail
    assert not conditions.proven
    assert trace(moto, bucket) == []


def test_a_canary_that_may_not_be_put_is_a_denial_that_names_the_statement(stub: StubS3, bucket: str) -> None:
    stub.create_bucket(bucket)
    stub.always(refusing(403, "AccessDenied"), operation="PutObject")
    found, _ = proven(stub, bucket)
    assert found.verdict is Verdict.DENIED
    assert "s3:PutObject" in found.remedy
    assert stub.keys(bucket) == set()


@pytest.mark.parametrize("operation", ["PutObject", "HeadObject"])
def test_a_canary_that_gets_no_clear_answer_proves_nothing_and_is_removed(
    stub: StubS3, bucket: str, operation: str
) -> None:
    stub.create_bucket(bucket)

    def lose(request: Request) -> Any:
        if NAME in request.key and request.operation == operation:
            return applied(answering(500, b""))
        return None

    stub.program = lose
    found, conditions = proven(stub, bucket)
    assert found.verdict is Verdict.UNKNOWN
    assert not conditions.proven
    assert stub.keys(bucket) == set()


@pytest.mark.parametrize("done", [True, False])
def test_a_store_whose_answer_and_deed_differ_is_not_proven(stub: StubS3, bucket: str, done: bool) -> None:
    stub.create_bucket(bucket)

    def lie(request: Request) -> Any:
        if request.operation != "DeleteObjects" or NAME not in request.body.decode():
            return None
        (entry,) = request.entries
        if done:
            # It says that the condition does not hold, and has deleted all the same.
            del stub._buckets[bucket][entry.key]
            return answering(200, delete_result(errors={entry.key: "PreconditionFailed"}))
        return answering(200, delete_result(deleted=(entry.key,)))

    stub.program = lie
    found, conditions = proven(stub, bucket)
    assert found.verdict is Verdict.DENIED
    assert not conditions.proven
    assert stub.keys(bucket) == set()


def test_a_canary_that_cannot_be_removed_is_named(stub: StubS3, bucket: str) -> None:
    stub.create_bucket(bucket)

    def keep(request: Request) -> Any:
        plain = request.operation == "DeleteObject" and "if-match" not in request.headers
        return refusing(403, "AccessDenied") if plain and NAME in request.key else None

    stub.program = keep
    found, conditions = proven(stub, bucket)
    (left,) = stub.keys(bucket)
    assert found.verdict is Verdict.UNKNOWN
    assert left in found.detail
    assert not conditions.proven


@pytest.mark.parametrize(("wanted", "folder"), [(True, "d/"), ("canary/", "canary/")])
def test_it_is_put_beside_the_plan_or_where_it_was_allowed(
    stub: StubS3, bucket: str, wanted: bool | str, folder: str
) -> None:
    stub.create_bucket(bucket)
    assert proven(stub, bucket, wanted=wanted)[0].verdict is Verdict.ALLOWED
    put = [r.key for r in stub.requests if r.operation == "PutObject"]
    assert len(put) == 2
    assert all(key.startswith(folder + NAME) and len(key) == len(folder + NAME) + 32 for key in put)


def test_nothing_is_put_where_nobody_asked_for_it(stub: StubS3, bucket: str) -> None:
    stub.create_bucket(bucket)
    prober = S3Prober(reach(stub), modes={bucket: None})
    prober.probe(FakeClock().now(), [ObjectRef(bucket, "d/a.txt")])
    assert not stub.counts["PutObject"]


def test_one_canary_a_run_is_enough_and_the_next_run_puts_its_own(stub: StubS3, bucket: str) -> None:
    stub.create_bucket(bucket)
    _, conditions = proven(stub, bucket)
    prober = S3Prober(reach(stub), modes={bucket: None}, conditions=conditions)
    again = prober.probe(FakeClock().now(), [ObjectRef(bucket, "d/a.txt")])
    assert "proven earlier" in again[-1].detail
    assert stub.counts["PutObject"] == 2
    proven(stub, bucket)
    assert stub.counts["PutObject"] == 4


def test_no_canary_is_put_where_a_permission_is_missing_anyway(weed: SeaweedFS, bucket: str) -> None:
    weed.create_bucket(bucket)
    found, conditions = proven(weed, bucket, identity=READER)
    assert found.verdict is Verdict.DENIED
    assert not conditions.proven


def test_no_canary_is_put_where_a_lock_would_keep_it(moto: Moto, bucket: str) -> None:
    moto.create_bucket(bucket, object_lock=True)
    rule = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}}
    moto.client().put_object_lock_configuration(Bucket=bucket, ObjectLockConfiguration=rule)
    found, _ = proven(moto, bucket, mode="marker")
    assert found.verdict is Verdict.UNKNOWN
    assert "would keep it" in found.detail
    assert trace(moto, bucket) == []


def test_a_purge_by_version_needs_no_canary(moto: Moto, bucket: str) -> None:
    moto.create_bucket(bucket, versioned=True)
    found, _ = proven(moto, bucket, mode="purge")
    assert found.verdict is Verdict.ALLOWED
    assert "names a version" in found.detail
    assert trace(moto, bucket) == []


def test_the_store_stops_looking_first_once_it_is_proven(stub: StubS3, bucket: str) -> None:
    stub.create_bucket(bucket)
    conditions = Conditions()
    conditions.demand(bucket, wanted=True)
    store = S3ObjectStore(
        reach(stub), clock=FakeClock(), conditional=conditions.proven, demanded=conditions.demanded
    )
    assert "a canary proves" in store.protection(bucket)
    stored = stub.put(bucket, "d/a.txt", b"x")
    conditions.proven[bucket] = "seen"
    assert "(proven)" in store.protection(bucket)
    ref = ObjectRef(bucket, "d/a.txt", f'"{stored.etag}"', None, 1)
    stub.put(bucket, "d/a.txt", b"newer")
    outcome = store.delete([ref], gate=lambda: None)[ref]
    assert outcome.code == "overwritten"
    assert (stub.counts["HeadObject"], stub.keys(bucket)) == (0, {"d/a.txt"})

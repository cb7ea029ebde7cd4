"""A permission counts only when both delete requests prove it, and proving it changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from safedelete.core.item import ObjectRef
from safedelete.ports import Prober, Proof, Verdict
from safedelete.s3.groups import Group
from safedelete.s3.probe import Answer, S3Prober, both, probe_alone, probe_together
from safedelete.testing.servers import (
    ADMIN,
    NOBODY,
    READER,
    RUNNER,
    UPLOADER,
    Identity,
    Moto,
    SeaweedFS,
    StubS3,
)
from safedelete.testing.servers.faults import LIES, refusing
from safedelete.testing.servers.faults import Answer as Reply
from tests.s3.support import reach

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def proofs(
    server: SeaweedFS | Moto | StubS3,
    bucket: str,
    *keys: str,
    identity: Identity = ADMIN,
    mode: Any = None,
    prefixes: tuple[str, ...] = (),
    etag: str | None = '"e"',
    version: str | None = None,
) -> list[Proof]:
    prober = S3Prober(
        reach(server, identity, read_timeout=1),
        modes={bucket: mode},
        prefixes=[(bucket, prefix) for prefix in prefixes],
    )
    as_port: Prober = prober
    return list(as_port.probe(NOW, [ObjectRef(bucket, key, etag, version) for key in keys]))


def deleting(found: list[Proof]) -> list[Proof]:
    return [proof for proof in found if "s3:DeleteObject" in proof.subject]


def verdicts(found: list[Proof]) -> set[Verdict]:
    return {proof.verdict for proof in found}


@pytest.fixture
def filled(weed: SeaweedFS, bucket: str) -> Callable[..., dict[str, bytes]]:
    def fill(*keys: str, versioned: bool = False) -> dict[str, bytes]:
        weed.create_bucket(bucket, versioned=versioned)
        for key in keys:
            weed.client().put_object(Bucket=bucket, Key=key, Body=b"x")
        return contents(weed, bucket)

    return fill


def contents(server: SeaweedFS | Moto, bucket: str) -> dict[str, bytes]:
    client = server.client()
    found = client.list_object_versions(Bucket=bucket)
    names = [
        (v["Key"], v["VersionId"]) for v in [*found.get("Versions", []), *found.get("DeleteMarkers", [])]
    ]
    return {f"{key}@{version}": b"" for key, version in names}


# --- verdicts on a real store ---


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("identity", [ADMIN, RUNNER])
def test_who_may_delete_is_allowed_and_nothing_is_left_behind(
    weed: SeaweedFS, bucket: str, filled: Any, identity: Identity, *, versioned: bool
) -> None:
    before = filled("d/a.txt", "d/b.jpg", "e/c", versioned=versioned)
    if versioned:
        weed.allow(bucket, actions=["s3:GetBucketObjectLockConfiguration"], identity=RUNNER)
    for mode in ("marker", "purge") if versioned else (None,):
        found = proofs(
            weed, bucket, "d/a.txt", "d/b.jpg", "e/c", identity=identity, mode=mode, prefixes=("d/",)
        )
        assert verdicts(found) == {Verdict.ALLOWED}, found
        assert contents(weed, bucket) == before


@pytest.mark.parametrize("identity", [READER, UPLOADER])
def test_who_may_not_delete_is_denied_and_told_what_is_missing(
    weed: SeaweedFS, bucket: str, filled: Any, identity: Identity
) -> None:
    before = filled("d/a.txt")
    (proof,) = deleting(proofs(weed, bucket, "d/a.txt", identity=identity))
    assert proof.verdict is Verdict.DENIED
    assert "AccessDenied" in proof.detail
    assert json.loads(proof.remedy) == {
        "Effect": "Allow",
        "Action": ["s3:DeleteObject", "s3:GetObject"],
        "Resource": f"arn:aws:s3:::{bucket}/d/*",
    }
    assert contents(weed, bucket) == before


def test_a_denied_folder_among_allowed_ones_is_named(weed: SeaweedFS, bucket: str, filled: Any) -> None:
    filled("open/a", "shut/a", "shut/b", "open/c")
    weed.deny(bucket, ["shut/*"])
    found = deleting(proofs(weed, bucket, "open/a", "shut/a", "shut/b", "open/c", identity=RUNNER))
    assert {(p.verdict, p.subject.rpartition(" ")[2]) for p in found} == {
        (Verdict.DENIED, f"s3://{bucket}/shut/"),
        (Verdict.ALLOWED, f"s3://{bucket}/"),
    }


def test_a_denied_extension_is_found(weed: SeaweedFS, bucket: str, filled: Any) -> None:
    filled("d/a.txt", "d/a.pdf")
    weed.deny(bucket, ["*.pdf"])
    found = deleting(proofs(weed, bucket, "d/a.txt", "d/a.pdf", identity=RUNNER))
    assert Verdict.DENIED in verdicts(found)


def test_deleting_versions_is_proven_by_itself(weed: SeaweedFS, bucket: str, filled: Any) -> None:
    before = filled("d/a", versioned=True)
    weed.allow(bucket, actions=["s3:GetBucketObjectLockConfiguration"], identity=RUNNER)
    weed.deny(bucket, actions=["s3:DeleteObjectVersion"])
    found = deleting(proofs(weed, bucket, "d/a", identity=RUNNER, mode="purge"))
    assert verdicts(found) == {Verdict.DENIED}
    assert contents(weed, bucket) == before


def test_the_statement_that_is_missing_names_what_was_denied_of_a_versioned_bucket(
    weed: SeaweedFS, bucket: str, filled: Any
) -> None:
    filled("d/a", versioned=True)
    (proof,) = [p for p in proofs(weed, bucket, "d/a", identity=RUNNER, mode="purge") if p.remedy]
    assert proof.verdict is Verdict.UNKNOWN
    assert proof.subject == f"s3:GetBucketObjectLockConfiguration on {bucket}"
    assert json.loads(proof.remedy) == {
        "Effect": "Allow",
        "Action": ["s3:GetBucketObjectLockConfiguration"],
        "Resource": f"arn:aws:s3:::{bucket}",
    }


def test_who_may_do_nothing_is_not_allowed_anything(weed: SeaweedFS, bucket: str, filled: Any) -> None:
    filled("d/a")
    found = proofs(weed, bucket, "d/a", identity=NOBODY, prefixes=("d/",))
    assert Verdict.ALLOWED not in verdicts(found)


def test_listing_and_looking_are_proven_too(weed: SeaweedFS, bucket: str, filled: Any) -> None:
    filled("d/a")
    weed.deny(bucket, actions=["s3:ListBucket"])
    denied = [
        p for p in proofs(weed, bucket, identity=RUNNER, prefixes=("d/",)) if p.verdict is Verdict.DENIED
    ]
    assert [p.subject for p in denied] == [f"s3:ListBucket on s3://{bucket}/d/"]
    assert json.loads(denied[0].remedy)["Resource"] == f"arn:aws:s3:::{bucket}"
    weed.lift(bucket)
    weed.deny(bucket, actions=["s3:GetObject"])
    denied = [p for p in proofs(weed, bucket, "d/a", identity=RUNNER) if p.verdict is Verdict.DENIED]
    assert f"s3:GetObject on s3://{bucket}/d/" in [p.subject for p in denied]


@pytest.mark.parametrize(("status", "verdict"), [(403, Verdict.DENIED), (500, Verdict.UNKNOWN)])
def test_a_store_that_does_not_say_404_of_what_is_gone_is_not_allowed(
    stub: StubS3, status: int, verdict: Verdict
) -> None:
    stub.put("b", "d/a")

    def hide(request: Any, honest: Any) -> Reply:
        answer = honest()
        return Reply(status) if answer.status == 404 else answer

    stub.always(hide, "HeadObject")
    [proof] = [p for p in proofs(stub, "b", "d/a") if p.verdict is not Verdict.ALLOWED]
    assert proof.verdict is verdict
    assert proof.subject.startswith("s3:ListBucket on b")
    if verdict is Verdict.DENIED:
        assert json.loads(proof.remedy) == {
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": "arn:aws:s3:::b",
        }


def test_a_store_that_says_404_of_what_it_lists_is_not_believed(stub: StubS3) -> None:
    stub.put("b", "d/a")
    stub.always(refusing(404, "NoSuchKey"), "HeadObject")
    found = [proof for proof in proofs(stub, "b", "d/a") if proof.subject.startswith("s3:GetObject")]
    assert [proof.verdict for proof in found] == [Verdict.UNKNOWN]
    assert "the listing names it" in found[0].detail
    assert Verdict.UNKNOWN not in verdicts(proofs(stub, "b", "d/gone")), "it went since it was planned"


def test_an_empty_prefix_target_is_probed_all_the_same(weed: SeaweedFS, bucket: str, filled: Any) -> None:
    filled()
    assert verdicts(deleting(proofs(weed, bucket, identity=READER, prefixes=("d/",)))) == {Verdict.DENIED}
    assert verdicts(deleting(proofs(weed, bucket, identity=RUNNER, prefixes=("d/",)))) == {Verdict.ALLOWED}


def test_a_missing_bucket_and_a_wrong_secret_are_unknown(weed: SeaweedFS) -> None:
    for identity in (ADMIN, Identity("admin", "sdadmin", "wrong", ())):
        found = proofs(weed, "no-such-bucket-here", "a", identity=identity)
        assert verdicts(found) == {Verdict.UNKNOWN}
        assert found[0].remedy


def test_an_unreachable_store_is_unknown() -> None:
    from safedelete.s3.client import connect

    connection = connect(
        endpoint_url="http://127.0.0.1:1", access_key="k", secret_key="s", connect_timeout=0.3
    )
    found = S3Prober(connection, modes={"acme": None}).probe(NOW, [ObjectRef("acme", "a")])
    assert verdicts(list(found)) == {Verdict.UNKNOWN}


def test_a_versioned_bucket_without_a_mode_is_not_probed(weed: SeaweedFS, bucket: str, filled: Any) -> None:
    before = filled("d/a", versioned=True)
    found = proofs(weed, bucket, "d/a")
    assert [p.verdict for p in found if "mode" in p.subject] == [Verdict.DENIED]
    assert not deleting(found)
    assert contents(weed, bucket) == before


# --- answers ---


HONEST_ALONE = {"204 no body", "200 transient key errors"}
"""What is a true answer to a single delete."""

NAMES_SOME_KEYS = {
    "200 first key only",
    "200 stranger key",
    "200 transient key errors",
    "200 duplicate key",
    "200 deleted and error",
}
"""Answers to a batch that name some of its keys as they should."""


@pytest.mark.parametrize(
    ("operation", "name"),
    [("DeleteObjects", name) for name in LIES]
    + [("DeleteObject", name) for name in LIES if name not in HONEST_ALONE],
)
def test_a_lie_through_either_request_is_never_a_permission(stub: StubS3, operation: str, name: str) -> None:
    stub.put("b", "d/a")
    stub.always(LIES[name], operation)
    found = deleting(proofs(stub, "b", "d/a", "e/a", "f/a"))
    assert verdicts(found) - {Verdict.ALLOWED}, "at least one folder is not proven"
    if operation == "DeleteObject" or name not in NAMES_SOME_KEYS:
        assert Verdict.ALLOWED not in verdicts(found)
    assert stub.keys("b") == {"d/a"}


@pytest.mark.parametrize("refused", ["DeleteObjects", "DeleteObject"])
def test_when_the_two_requests_disagree_the_refusal_holds(stub: StubS3, refused: str) -> None:
    stub.put("b", "d/a")
    stub.always(refusing(403, "AccessDenied"), refused)
    (proof,) = deleting(proofs(stub, "b", "d/a"))
    assert proof.verdict is Verdict.DENIED
    assert "disagree" in proof.detail


@pytest.mark.parametrize("refused", ["DeleteObjects", "DeleteObject"])
def test_when_one_request_is_not_understood_nothing_is_proven(stub: StubS3, refused: str) -> None:
    stub.put("b", "d/a")
    stub.always(refusing(501, "NotImplemented"), refused)
    (proof,) = deleting(proofs(stub, "b", "d/a"))
    assert proof.verdict is Verdict.UNKNOWN
    assert not proof.remedy, "no policy statement is missing"


def test_both_are_joined() -> None:
    yes, no, what = (Answer(v, v.value) for v in (Verdict.ALLOWED, Verdict.DENIED, Verdict.UNKNOWN))
    assert [both(a, b)[0] for a in (yes, no, what) for b in (yes, no, what)] == [
        Verdict.ALLOWED, Verdict.DENIED, Verdict.UNKNOWN,
        Verdict.DENIED, Verdict.DENIED, Verdict.DENIED,
        Verdict.UNKNOWN, Verdict.DENIED, Verdict.UNKNOWN,
    ]  # fmt: skip


def test_an_explicit_deny_is_not_answered_with_an_allow(stub: StubS3) -> None:
    stub.put("b", "d/a")

    def deny(*_: Any) -> Reply:
        body = b"<Error><Code>AccessDenied</Code><Message>with an explicit deny in a service control policy</Message></Error>"
        return Reply(403, body, {"Content-Type": "application/xml"})

    for operation in ("DeleteObjects", "DeleteObject"):
        stub.always(deny, operation)
    (proof,) = deleting(proofs(stub, "b", "d/a"))
    assert "must be lifted" in proof.remedy


# --- what is sent ---


def test_a_probe_never_names_a_key_of_the_plan_nor_any_that_exists(stub: StubS3) -> None:
    keys = [f"d/{n}/k{n}.txt" for n in range(50)]
    for key in keys:
        stub.put("b", key)
    proofs(stub, "b", *keys)
    named = [key for r in stub.requests if r.operation.startswith("DeleteObject") for key in r.keys]
    assert len(named) == 100
    assert not set(named) & stub.keys("b")
    assert len(set(named)) == 100
    assert {key.rpartition("/")[0] for key in named} == {f"d/{n}" for n in range(50)}
    assert all(key.endswith(".txt") for key in named)


@pytest.mark.parametrize(("etag", "sent"), [('"e"', '"00000000000000000000000000000000-0"'), (None, None)])
def test_a_condition_is_probed_where_the_plan_will_send_one(stub: StubS3, etag: Any, sent: Any) -> None:
    stub.put("b", "d/a")
    found = deleting(proofs(stub, "b", "d/a", etag=etag))
    assert verdicts(found) == {Verdict.ALLOWED}
    assert ("s3:GetObject" in found[0].subject) is (etag is not None)
    together = next(r for r in stub.requests if r.operation == "DeleteObjects")
    alone = next(r for r in stub.requests if r.operation == "DeleteObject")
    assert together.entries[0].etag == alone.headers.get("if-match") == sent


def test_a_thousand_folders_take_one_batch_and_more_are_counted(stub: StubS3) -> None:
    keys = [f"d{n}/a" for n in range(1005)]
    stub.create_bucket("b")
    found = deleting(proofs(stub, "b", *keys))
    assert stub.counts["DeleteObjects"] == 1
    assert "5 more were not probed" in found[0].detail


def test_many_denied_folders_are_summed_up(stub: StubS3) -> None:
    stub.create_bucket("b")
    stub.always(refusing(403, "AccessDenied"))
    found = deleting(proofs(stub, "b", *[f"d{n}/a" for n in range(30)]))
    assert len(found) == 21
    assert "10 more folders" in found[-1].subject


@pytest.mark.parametrize("key", ["a\x01b", "d/" + "x" * 1020, "d/a.\x01", "é" * 500, "..", "a/../b.txt"])
def test_odd_keys_have_probes_that_can_be_sent(stub: StubS3, key: str) -> None:
    stub.put("b", key)
    assert verdicts(deleting(proofs(stub, "b", key))) == {Verdict.ALLOWED}


def test_a_folder_that_xml_cannot_say_is_probed_alone_and_spoils_no_other(stub: StubS3) -> None:
    for key in ("d/a.jpg", "control\x01/a.jpg"):
        stub.put("b", key)
    found = deleting(proofs(stub, "b", "d/a.jpg", "control\x01/a.jpg"))
    assert verdicts(found) == {Verdict.ALLOWED}
    alone = [key for r in stub.requests if r.operation == "DeleteObject" for key in r.keys]
    assert {key.rpartition("/")[0] for key in alone} == {"control\x01", "d"}
    (batch,) = [r.keys for r in stub.requests if r.operation == "DeleteObjects"]
    assert {key.rpartition("/")[0] for key in batch} == {"d"}
    stub.program = lambda r: refusing(403, "AccessDenied") if r.operation == "DeleteObject" else None
    assert verdicts(deleting(proofs(stub, "b", "control\x01/a.jpg"))) == {Verdict.DENIED}


# --- markers ---


class MakesMarkers:
    """A store that ignores the condition and leaves a marker for each probe."""

    def __init__(self, *, removable: bool = True) -> None:
        self.markers: set[tuple[str, str]] = set()
        self.removable = removable

    def delete_objects(self, *, Bucket: str, Delete: Any) -> Any:
        made = []
        for entry in Delete["Objects"]:
            self.markers.add((entry["Key"], "m1"))
            made.append({"Key": entry["Key"], "DeleteMarker": True, "DeleteMarkerVersionId": "m1"})
        return {"Deleted": made}

    def delete_object(self, *, Bucket: str, Key: str, VersionId: str | None = None, **_: Any) -> Any:
        if VersionId is None:
            self.markers.add((Key, "m2"))
            return {"DeleteMarker": True, "VersionId": "m2", "ResponseMetadata": {"HTTPStatusCode": 204}}
        if not self.removable:
            raise OSError("away")
        self.markers.discard((Key, VersionId))
        return {"ResponseMetadata": {"HTTPStatusCode": 204}}


@pytest.mark.parametrize("removable", [True, False])
def test_markers_that_a_probe_made_are_removed_or_reported(*, removable: bool) -> None:
    store: Any = MakesMarkers(removable=removable)
    group = Group("b", "d/", ".txt")
    (together,) = probe_together(store, "b", [group], "any-etag").values()
    alone = probe_alone(store, "b", group, "any-etag")
    assert together.verdict is alone.verdict is Verdict.ALLOWED
    assert bool(store.markers) is not removable
    word = "removed again" if removable else "not removed"
    assert word in together.said
    assert word in alone.said


def test_blind_spots_are_told(stub: StubS3) -> None:
    spots = S3Prober(reach(stub), modes={}).blind_spots()
    assert any("ExistingObjectTag" in spot for spot in spots)
    assert any("locks" in spot for spot in spots)


def test_objects_of_another_probers_bucket_are_left_to_it(stub: StubS3) -> None:
    stub.put("mine", "d/a")
    stub.put("yours", "d/a")
    prober = S3Prober(reach(stub), modes={"mine": None})
    prober.probe(NOW, [ObjectRef("mine", "d/a"), ObjectRef("yours", "d/a")])
    assert {request.bucket for request in stub.requests} == {"mine"}


def test_marker_mode_on_an_unversioned_bucket_is_refused(stub: StubS3) -> None:
    stub.put("b", "d/a")
    found = proofs(stub, "b", "d/a", mode="marker")
    assert [p.verdict for p in found if "mode" in p.subject] == [Verdict.DENIED]
    assert not deleting(found)

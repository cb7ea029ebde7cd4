"""Whatever the keys, the policies and the faults: only what was planned goes, and outcomes say what became of it."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import Outcome, Tally
from safedelete.declare.prefix import S3Prefix
from safedelete.ports import Presence
from safedelete.s3.effort import Effort
from safedelete.s3.listing import list_objects
from safedelete.s3.store import S3ObjectStore
from safedelete.s3.target import PrefixTarget
from safedelete.testing.servers import Moto, StubS3
from safedelete.testing.servers.faults import (
    RESET,
    Fault,
    answering,
    applied,
    delete_result,
    error_body,
    key_errors,
    refusing,
)
from tests.s3.support import FakeClock, Gate, Stopped, reach

NAMES = [f"{folder}{name}" for folder in ("p/", "p/q/", "") for name in ("a", "b", "ab", "a\x01", "é&", "..")]
TRUTHFUL: list[Fault | None] = [
    None,
    RESET,
    applied(RESET),
    refusing(503, "SlowDown"),
    applied(refusing(500, "InternalError")),
    refusing(403, "AccessDenied"),
    answering(200, b""),
    applied(answering(200, b"<html/>")),
    applied(answering(200, delete_result())),
    answering(200, error_body("SlowDown")),
    key_errors({"p/a": "AccessDenied", "p/b": "SlowDown", "p/q/a": "InternalError"}),
]
"""Faults that lose or refuse; none claims to have deleted what it did not."""

EFFORT = Effort(attempts=3, pause=0.001, jitter=lambda: 0.0, chunk=4)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    there=st.sets(st.sampled_from(NAMES)),
    planned=st.lists(st.sampled_from(NAMES), unique=True, min_size=1),
    overwritten=st.sets(st.sampled_from(NAMES), max_size=3),
    faults=st.lists(st.sampled_from(TRUTHFUL), max_size=6),
    stop_after=st.none() | st.integers(0, 6),
)
def test_only_what_was_planned_goes_and_outcomes_are_true(
    stub: StubS3,
    there: set[str],
    planned: list[str],
    overwritten: set[str],
    faults: list[Fault | None],
    stop_after: int | None,
) -> None:
    stub.behave()
    stub._buckets.clear()
    stub._sorted.clear()
    stub.create_bucket("b")
    for name in there:
        stub.put("b", name, b"old")
    etag = f'"{hashlib.md5(b"old").hexdigest()}"'
    refs = [ObjectRef("b", key, etag, None, 3) for key in planned]
    for name in overwritten & there:
        stub.put("b", name, b"new")
    stub.script(*faults)
    stub.script(*faults, operation="DeleteObject")
    store = S3ObjectStore(reach(stub), clock=FakeClock(), effort=EFFORT)
    before = stub.keys("b")
    outcomes: dict[ObjectRef, Any] = {}
    try:
        outcomes = dict(store.delete(refs, gate=Gate(stop_after)))
    except Stopped:
        assert stop_after is not None
    left = stub.keys("b")
    gone = before - left

    assert gone <= set(planned), "executed is within planned"
    assert not gone & overwritten, "what was overwritten is kept"
    if not outcomes:
        return
    assert Tally.of(outcomes.values()).total == len(planned)
    for ref, outcome in outcomes.items():
        match outcome.state:
            case Outcome.DELETED | Outcome.GONE:
                assert ref.key not in left
            case Outcome.CHANGED:
                assert ref.key in left
                assert ref.key in overwritten
            case Outcome.FAILED:
                assert ref.key in left
            case Outcome.UNKNOWN:
                pass
            case Outcome.BLOCKED:
                raise AssertionError("nothing is locked here")
    stub.behave()
    residue = store.remaining(refs)
    assert {ref.key for ref in residue} == (left & set(planned)) - overwritten
    assert set(residue.values()) <= {Presence.PRESENT}


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_on_a_store_with_policies_survivors_are_what_the_outcomes_say(
    moto: Moto, data: st.DataObject
) -> None:
    bucket = f"sd-{uuid.uuid4().hex[:16]}"
    moto.create_bucket(bucket)
    names = data.draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=2, max_size=8))
    planned = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    # moto takes a dot in a policy for any letter, so that a denial of ".." would be one of "ab".
    deniable = [name for name in names if "." not in name]
    denied = data.draw(st.sets(st.sampled_from(deniable), max_size=2)) if deniable else set[str]()
    client = reach(moto).deleter
    refs = {}
    for name in names:
        refs[name] = ObjectRef(bucket, name, client.put_object(Bucket=bucket, Key=name, Body=b"x")["ETag"])
    if denied:
        moto.deny(bucket, sorted(denied), actions=("s3:DeleteObject",))
    store = S3ObjectStore(reach(moto), clock=FakeClock(), effort=EFFORT)
    outcomes = store.delete([refs[name] for name in planned], gate=Gate())
    moto.lift(bucket)
    left = {o["Key"] for o in client.list_objects_v2(Bucket=bucket).get("Contents", [])}
    deleted = {ref.key for ref, outcome in outcomes.items() if outcome.state is Outcome.DELETED}
    assert left == set(names) - deleted
    assert deleted == set(planned) - denied


MIDRUN = st.lists(st.sampled_from(["well", "lost", "unsent", "busy", "empty"]), max_size=5)
"""What happens to each DeleteObjects in turn; afterwards all is well."""


class Faulty:
    """A client whose DeleteObjects goes wrong in the middle, on a store that cannot be told to."""

    def __init__(self, client: Any, faults: list[str]) -> None:
        self._client = client
        self._faults = iter(faults)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def delete_objects(self, **options: Any) -> Any:
        match next(self._faults, "well"):
            case "unsent":
                raise EndpointConnectionError(endpoint_url="http://gone")
            case "busy":
                answer = {"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}
                raise ClientError(answer, "DeleteObjects")  # type: ignore[arg-type]
            case "lost":
                self._client.delete_objects(**options)
                raise ReadTimeoutError(endpoint_url="http://slow")
            case "empty":
                return {"ResponseMetadata": {"HTTPStatusCode": 200}}
            case _:
                return self._client.delete_objects(**options)


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_planned_prefix_ends_as_its_outcomes_say_whatever_is_denied_and_goes_wrong(
    moto: Moto, data: st.DataObject
) -> None:
    bucket = f"sd-{uuid.uuid4().hex[:16]}"
    moto.create_bucket(bucket)
    names = data.draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=2, max_size=9), label="keys")
    deniable = [name for name in names if "." not in name]
    denied = (
        data.draw(st.sets(st.sampled_from(deniable), max_size=3), label="denied") if deniable else set[str]()
    )
    faults = data.draw(MIDRUN, label="faults")
    client = reach(moto).deleter
    for name in names:
        client.put_object(Bucket=bucket, Key=name, Body=b"x")
    broken: Any = Faulty(client, faults)
    connection = replace(reach(moto), deleter=broken)
    store = S3ObjectStore(connection, clock=FakeClock(), effort=EFFORT)
    target = PrefixTarget(
        S3Prefix(bucket, "p", older_than=timedelta(days=1)), reach(moto), store, page_size=3
    )
    tomorrow = datetime.now(UTC) + timedelta(days=2)
    surveyed = target.survey(tomorrow, portion=None, since=None)
    planned = [ref for page in target.scan(tomorrow, batch=3, portion=None) for ref in page]
    overwritten = data.draw(st.sets(st.sampled_from(names), max_size=2), label="overwritten")
    for name in overwritten:
        client.put_object(Bucket=bucket, Key=name, Body=b"newer")
    if denied:
        moto.deny(bucket, sorted(denied), actions=("s3:DeleteObject",))

    outcomes: dict[ObjectRef, Any] = {}
    for start in range(0, len(planned), 3):
        outcomes |= store.delete(planned[start : start + 3], gate=Gate())

    moto.lift(bucket)
    left = {item.key for page in list_objects(client, bucket, "") for item in page}
    keys = {ref.key for ref in planned}
    gone = set(names) - left
    assert surveyed.items == len(planned)
    assert keys == {name for name in names if name.startswith("p/")}
    assert gone <= keys - denied - overwritten, "executed is within planned, and within what was allowed"
    assert Tally.of(outcomes.values()).total == len(planned)
    for ref, outcome in outcomes.items():
        if outcome.state in (Outcome.DELETED, Outcome.GONE):
            assert ref.key in gone
        elif outcome.state is not Outcome.UNKNOWN:
            assert ref.key in left
    assert {ref.key for ref in store.remaining(planned)} == (left & keys) - overwritten

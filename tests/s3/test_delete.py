"""Every key asked for ends in exactly one outcome, and no lie of a store becomes a success."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import Outcome
from safedelete.s3.delete import delete_objects
from safedelete.s3.effort import Effort
from safedelete.s3.pace import Pace
from safedelete.testing.servers import Moto, SeaweedFS, StubS3
from safedelete.testing.servers.faults import (
    LIES,
    RESET,
    SLOW_DOWN,
    answering,
    applied,
    key_errors,
    refusing,
)
from tests.s3.support import QUICK, FakeClock, Gate, Stopped, reach

ACKNOWLEDGED = (Outcome.DELETED, Outcome.GONE)


def refs(bucket: str, *keys: str) -> list[ObjectRef]:
    return [ObjectRef(bucket, key) for key in keys]


def states(outcomes: dict[ObjectRef, Any]) -> dict[str, str]:
    return {ref.key: outcome.state.value for ref, outcome in outcomes.items()}


def run(
    store: StubS3,
    items: list[ObjectRef],
    *,
    gate: Gate | None = None,
    effort: Effort = QUICK,
    read_timeout: float = 0.5,
    **options: Any,
) -> dict[ObjectRef, Any]:
    client = reach(store, read_timeout=read_timeout).deleter
    return delete_objects(
        client, "lies", items, gate=gate or Gate(), clock=FakeClock(), effort=effort, **options
    )


# --- lies ---


@pytest.mark.parametrize("name", LIES)
def test_a_lying_answer_never_becomes_success(stub: StubS3, name: str) -> None:
    for key in "abc":
        stub.put("lies", key)
    stub.always(LIES[name])
    outcomes = run(stub, refs("lies", "a", "b", "c"))
    assert len(outcomes) == 3
    # What an answer names once, clearly and alone is believed; the look afterwards is what unmasks such a liar.
    believed = {
        "200 first key only": {"a", "b", "c"},  # each is the only key of its request by the last attempt
        "200 transient key errors": {"a", "b", "c"},
        "200 duplicate key": {"b"},
        "200 deleted and error": {"b", "c"},
    }.get(name, set())
    acknowledged = {ref.key for ref, outcome in outcomes.items() if outcome.state in ACKNOWLEDGED}
    assert acknowledged <= believed


@pytest.mark.parametrize("name", LIES)
def test_a_single_attempt_believes_only_what_names_a_key(stub: StubS3, name: str) -> None:
    for key in "abc":
        stub.put("lies", key)
    stub.always(LIES[name])
    outcomes = run(stub, refs("lies", "a", "b", "c"), effort=Effort(attempts=1))
    believed = {
        "200 first key only": {"a"},
        "200 transient key errors": {"a"},
        "200 duplicate key": {"b"},
        "200 deleted and error": {"b", "c"},
    }
    acknowledged = {ref.key for ref, outcome in outcomes.items() if outcome.state in ACKNOWLEDGED}
    assert acknowledged == believed.get(name, set())
    assert all(o.code or o.state in ACKNOWLEDGED for o in outcomes.values())


@pytest.mark.parametrize("status", [200, 202, 302, 404, 500])
def test_a_single_delete_counts_only_when_answered_204(stub: StubS3, status: int) -> None:
    stub.put("lies", "a\x01b")
    stub.always(answering(status, b"<html>sign in</html>", content="text/html"), "DeleteObject")
    (outcome,) = run(stub, refs("lies", "a\x01b")).values()
    assert outcome.state not in ACKNOWLEDGED


def test_a_stranger_in_the_answer_is_not_asked_for_again(stub: StubS3) -> None:
    stub.always(LIES["200 stranger key"])
    outcomes = run(stub, refs("lies", "a", "b"))
    assert {o.code for o in outcomes.values()} == {"Stranger"}
    assert stub.counts["DeleteObjects"] == 1


def test_busy_then_well_is_deleted(stub: StubS3) -> None:
    stub.put("lies", "a")
    stub.script(SLOW_DOWN, None)
    assert states(run(stub, refs("lies", "a"))) == {"a": "deleted"}


def test_a_lost_acknowledgement_under_a_condition_is_gone_not_failed(stub: StubS3) -> None:
    etag = f'"{stub.put("lies", "a").etag}"'
    stub.script(applied(RESET))
    (outcome,) = run(stub, [ObjectRef("lies", "a", etag)]).values()
    assert outcome.state is Outcome.GONE


def test_denied_after_a_lost_answer_stays_unknown(stub: StubS3) -> None:
    stub.put("lies", "a")
    stub.script(applied(RESET), refusing(403, "AccessDenied"))
    (outcome,) = run(stub, refs("lies", "a")).values()
    assert outcome.state is Outcome.UNKNOWN
    assert outcome.code == "AccessDenied"


def test_an_error_without_code_or_message_has_an_outcome(stub: StubS3) -> None:
    stub.always(answering(403))
    (outcome,) = run(stub, refs("lies", "a")).values()
    assert outcome.state is Outcome.FAILED


# --- retries and the gate ---


def test_only_the_keys_that_were_turned_away_are_asked_for_again(stub: StubS3) -> None:
    for key in "abcd":
        stub.put("lies", key)
    stub.script(key_errors({"b": "SlowDown", "d": "InternalError"}))
    assert set(states(run(stub, refs("lies", *"abcd"))).values()) == {"deleted"}
    asked = [sorted(r.keys) for r in stub.requests if r.operation == "DeleteObjects"]
    assert asked[0] == ["a", "b", "c", "d"]
    assert sorted(key for keys in asked[1:] for key in keys) == ["b", "d"]


@pytest.mark.parametrize("code", ["SlowDownRead", "SlowDownWrite"])
def test_minios_own_words_for_slow_down_are_heard(stub: StubS3, code: str) -> None:
    for key in "ab":
        stub.put("lies", key)
    stub.script(key_errors({"b": code}))
    pace = Pace(1000.0, FakeClock())
    assert set(states(run(stub, refs("lies", *"ab"), pace=pace)).values()) == {"deleted"}
    assert pace.rate < 1000


def test_access_denied_is_final(stub: StubS3) -> None:
    stub.always(key_errors({"b": "AccessDenied"}))
    for key in "abc":
        stub.put("lies", key)
    outcomes = run(stub, refs("lies", *"abc"))
    assert states(outcomes) == {"a": "deleted", "b": "failed", "c": "deleted"}
    assert stub.counts["DeleteObjects"] == 1
    assert stub.keys("lies") == {"b"}


def test_chunks_shrink_and_pauses_grow(stub: StubS3) -> None:
    stub.always(SLOW_DOWN)
    clock = FakeClock()
    delete_objects(
        reach(stub).deleter,
        "lies",
        refs("lies", *map(str, range(32))),
        gate=Gate(),
        clock=clock,
        effort=Effort(chunk=16, attempts=3, pause=1.0, jitter=lambda: 0.0),
    )
    sizes = [len(r.keys) for r in stub.requests]
    assert sizes == [16] * 2 + [4] * 8 + [1] * 32
    assert clock.slept == [0.5] * 6, "one second and then two, and the gate is asked twice a second"


def test_a_slow_rate_asks_for_a_second_of_keys_at_a_time_and_hears_a_stop_while_it_waits(
    stub: StubS3,
) -> None:
    clock = FakeClock()
    for number in range(100):
        stub.put("slow", str(number))

    def gate() -> None:
        if clock.time >= 2:
            raise Stopped

    with pytest.raises(Stopped):
        delete_objects(
            reach(stub).deleter,
            "slow",
            refs("slow", *map(str, range(100))),
            gate=gate,
            clock=clock,
            pace=Pace(20, clock),
        )
    assert {len(r.keys) for r in stub.requests if r.operation == "DeleteObjects"} == {20}
    assert clock.time <= 2.5
    assert len(stub.keys("slow")) >= 40


def test_a_closed_gate_stops_before_the_next_request(stub: StubS3) -> None:
    for number in range(6):
        stub.put("lies", str(number))
    gate = Gate(stop_after=2)
    with pytest.raises(Stopped):
        run(stub, refs("lies", *map(str, range(6))), gate=gate, effort=Effort(chunk=2))
    assert stub.counts["DeleteObjects"] == 2
    assert stub.keys("lies") == {"4", "5"}


def test_a_closed_gate_stops_before_a_retry(stub: StubS3) -> None:
    stub.put("lies", "a")
    stub.always(SLOW_DOWN)
    with pytest.raises(Stopped):
        run(stub, refs("lies", "a"), gate=Gate(stop_after=1))
    assert stub.counts["DeleteObjects"] == 1


def test_a_closed_gate_stops_before_a_single_delete(stub: StubS3) -> None:
    for key in ("a\x01", "b\x01"):
        stub.put("lies", key)
    with pytest.raises(Stopped):
        run(stub, refs("lies", "a\x01", "b\x01"), gate=Gate(stop_after=1))
    assert stub.keys("lies") == {"b\x01"}


def test_the_sdk_of_a_declared_client_asks_the_gate_before_it_resends(stub: StubS3) -> None:
    from safedelete.s3.client import connect

    stub.put("lies", "a")
    stub.always(SLOW_DOWN)
    declared = stub.client(retries={"mode": "standard", "total_max_attempts": 5})
    gate = Gate(stop_after=1)
    with pytest.raises(Stopped):
        delete_objects(
            connect(declared).deleter, "lies", refs("lies", "a"), gate=gate, clock=FakeClock(), effort=QUICK
        )
    assert stub.counts["DeleteObjects"] == 1


def test_the_hook_leaves_a_declared_clients_own_deletes_alone(stub: StubS3) -> None:
    from safedelete.s3.client import connect

    stub.put("lies", "a")
    stub.script(SLOW_DOWN)
    declared = stub.client(retries={"mode": "standard", "total_max_attempts": 3})
    connect(declared)
    answer = declared.delete_objects(Bucket="lies", Delete={"Objects": [{"Key": "a"}]})
    assert [d["Key"] for d in answer["Deleted"]] == ["a"]


def test_credentials_are_renewed_before_the_gate_is_asked_and_not_after_it(stub: StubS3) -> None:
    from datetime import UTC, datetime, timedelta

    import botocore.session
    from botocore.credentials import RefreshableCredentials

    happened: list[str] = []
    expiry = datetime.now(UTC) + timedelta(minutes=1)

    def renewed() -> dict[str, str]:
        happened.append("renewed")
        later = datetime.now(UTC) + timedelta(hours=1)
        return {"access_key": "k", "secret_key": "s", "token": "t", "expiry_time": later.isoformat()}

    session = botocore.session.Session()
    session._credentials = RefreshableCredentials("k", "s", "t", expiry, renewed, "test")  # type: ignore[attr-defined]
    client: Any = session.create_client("s3", endpoint_url=stub.endpoint, region_name="us-east-1")
    stub.put("lies", "a")
    outcomes = delete_objects(
        client, "lies", refs("lies", "a"), gate=lambda: happened.append("gate"), clock=FakeClock()
    )
    assert states(outcomes) == {"a": "deleted"}
    assert happened == ["renewed", "gate"]


def test_credentials_that_cannot_be_renewed_leave_each_key_accounted_for(stub: StubS3) -> None:
    from datetime import UTC, datetime, timedelta

    import botocore.session
    from botocore.credentials import RefreshableCredentials

    past = datetime.now(UTC) - timedelta(minutes=1)

    def stale() -> dict[str, str]:
        return {"access_key": "k", "secret_key": "s", "token": "t", "expiry_time": past.isoformat()}

    session = botocore.session.Session()
    session._credentials = RefreshableCredentials("k", "s", "t", past, stale, "test")  # type: ignore[attr-defined]
    client: Any = session.create_client("s3", endpoint_url=stub.endpoint, region_name="us-east-1")
    outcomes = delete_objects(client, "lies", refs("lies", "a"), gate=Gate(), clock=FakeClock(), effort=QUICK)
    ((state, code, detail),) = outcomes.values()
    assert (state, code) == (Outcome.UNKNOWN, "RuntimeError")
    assert "expired" in detail
    assert not stub.requests


# --- several requests at once ---


class Slow:
    """A client whose requests answer only when a number of them are under way."""

    def __init__(self, together: int) -> None:
        self.together = threading.Barrier(together, timeout=20)
        self.lock = threading.Lock()
        self.under_way = self.most = self.answered = 0

    def delete_objects(self, *, Delete: dict[str, Any], **_: Any) -> dict[str, Any]:  # boto3's name
        with self.lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        self.together.wait()
        with self.lock:
            self.under_way -= 1
            self.answered += 1
        return {"Deleted": [{"Key": entry["Key"]} for entry in Delete["Objects"]]}


def delete_slowly(client: Slow, keys: int, gate: Callable[[], None], **effort: Any) -> dict[ObjectRef, Any]:
    items = refs("b", *map(str, range(keys)))
    return delete_objects(
        client,  # type: ignore[arg-type]
        "b",
        items,
        gate=gate,
        clock=FakeClock(),
        effort=Effort(chunk=1, **effort),
    )


def test_a_few_requests_are_under_way_at_once_and_the_gate_is_asked_before_each_and_never_twice_at_once() -> (
    None
):
    client, inside, asked = Slow(3), threading.Lock(), list[int]()
    threads = set[int]()

    def gate() -> None:
        assert inside.acquire(blocking=False), "two gates at once"
        threads.add(threading.get_ident())
        asked.append(client.answered)
        inside.release()

    outcomes = delete_slowly(client, 12, gate, lanes=3)
    assert {o.state for o in outcomes.values()} == {Outcome.DELETED}
    assert len(outcomes) == len(asked) == client.answered == 12
    assert client.most == 3
    assert threads == {threading.get_ident()}, "a gate may ask a connection that belongs to one thread"
    # Each but the first three waited for an answer, so that nothing asked for goes out late.
    assert all(answered >= at - 2 for at, answered in enumerate(asked))


def test_a_gate_that_closes_waits_for_what_is_under_way_and_sends_nothing_more() -> None:
    client, gate = Slow(2), Gate(stop_after=2)
    with pytest.raises(Stopped):
        delete_slowly(client, 12, gate, lanes=4)
    assert (client.answered, client.under_way) == (2, 0)


class Resending:
    """A declared client whose SDK sends each of several requests again, which are all under way by then."""

    def __init__(self, stub: StubS3, together: int) -> None:
        from safedelete.s3.client import connect

        self.stub = stub
        self.together = threading.Barrier(together, timeout=20)
        self.lock = threading.Lock()
        self.first = together
        stub.always(self.answer)
        retries = {"mode": "standard", "total_max_attempts": 3}
        self.client = connect(stub.client(retries=retries, max_pool_connections=together)).deleter

    def answer(self, request: Any, honest: Any) -> Any:
        with self.lock:
            turned_away = self.first > 0
            self.first -= turned_away
        if not turned_away:
            return honest()
        self.together.wait()
        return SLOW_DOWN(request, honest)

    def delete(self, gate: Callable[[], None], keys: int, **effort: Any) -> dict[ObjectRef, Any]:
        for number in range(keys):
            self.stub.put("lies", str(number))
        items = refs("lies", *map(str, range(keys)))
        effort = {"chunk": 1, "lanes": 3, **effort}
        return delete_objects(
            self.client, "lies", items, gate=gate, clock=FakeClock(), effort=Effort(**effort)
        )


def test_the_sdk_has_the_gate_asked_by_the_thread_that_it_belongs_to(stub: StubS3) -> None:
    threads = list[int]()
    outcomes = Resending(stub, 3).delete(lambda: threads.append(threading.get_ident()), 7)
    assert {o.state for o in outcomes.values()} == {Outcome.DELETED}
    assert set(threads) == {threading.get_ident()}
    assert len(threads) == 7 + 3, "each key, and each that was sent again"


@pytest.mark.parametrize("passes", [3, 4, 5, 6])
def test_a_gate_that_closes_while_lanes_ask_for_it_ends_them_all(stub: StubS3, passes: int) -> None:
    resending = Resending(stub, 3)
    with pytest.raises(Stopped):
        resending.delete(Gate(stop_after=passes), 7)
    assert not [t for t in threading.enumerate() if t.name.startswith("safedelete-delete")]
    assert stub.counts["DeleteObjects"] == passes
    assert len(stub.keys("lies")) == 7 - (passes - 3)


def test_a_lane_that_fails_or_hangs_leaves_the_others_to_go_on(stub: StubS3) -> None:
    for number in range(12):
        stub.put("lies", str(number))

    def some(request: Any, honest: Any) -> Any:
        match request.keys[0]:
            case "0":
                return answering(200, b"", delay=9.0)(request, honest)
            case "1":
                return refusing(403, "AccessDenied")(request, honest)
            case "2":
                return applied(RESET)(request, honest)
            case _:
                return honest()

    stub.always(some)
    # Longer than an honest answer takes on a busy machine.
    outcomes = run(
        stub, refs("lies", *map(str, range(12))), effort=Effort(chunk=1, attempts=1), read_timeout=4.0
    )
    assert states(outcomes) == {str(n): "deleted" for n in range(12)} | {
        "0": "unknown",
        "1": "failed",
        "2": "unknown",
    }
    assert stub.keys("lies") == {"0", "1"}


def test_what_is_turned_away_by_one_of_several_requests_slows_all_down_once(stub: StubS3) -> None:
    for number in range(8):
        stub.put("lies", str(number))
    stub.script(SLOW_DOWN)
    pace = Pace(1000.0, FakeClock())
    outcomes = run(stub, refs("lies", *map(str, range(8))), effort=replace(QUICK, chunk=2), pace=pace)
    assert {o.state for o in outcomes.values()} == {Outcome.DELETED}
    # Two keys turned away; three requests before or after, and two more for those keys, win some of the rate back.
    assert 500 < pace.rate < 1000


def test_requests_that_are_turned_away_together_halve_the_rate_once_and_the_next_halves_it_again(
    stub: StubS3,
) -> None:
    clock, together = FakeClock(), threading.Barrier(4, timeout=20)

    def refuse(request: Any, honest: Any) -> Any:
        together.wait()
        with stub._lock:
            clock.time += 1.0
        return SLOW_DOWN(request, honest)

    def halved(attempts: int) -> float:
        pace = Pace(1000.0, clock)
        effort = Effort(chunk=1, attempts=attempts, pause=0.0)
        delete_objects(
            reach(stub).deleter,
            "lies",
            refs("lies", *"abcd"),
            gate=Gate(),
            clock=clock,
            effort=effort,
            pace=pace,
        )
        return pace.rate

    stub.always(refuse)
    assert halved(1) == 500
    assert halved(2) == 250


# --- what is sent ---


@pytest.mark.parametrize(("chunk", "sizes"), [(5000, [1, 1000]), (None, [1, 500, 500])])
def test_1001_keys_go_in_requests_of_at_most_1000(stub: StubS3, chunk: int | None, sizes: list[int]) -> None:
    keys = [f"k{n:04}" for n in range(1001)]
    for key in keys:
        stub.put("lies", key)
    outcomes = run(stub, refs("lies", *keys), effort=Effort(chunk=chunk))
    assert sorted(len(r.keys) for r in stub.requests) == sizes
    assert {o.state for o in outcomes.values()} == {Outcome.DELETED}
    assert not stub.keys("lies")


def test_1000_keys_go_in_one_request(stub: StubS3) -> None:
    run(stub, refs("lies", *(f"k{n:04}" for n in range(1000))))
    assert [len(r.keys) for r in stub.requests] == [1000]


def test_a_known_etag_is_sent_and_never_beside_a_version(stub: StubS3) -> None:
    run(stub, [ObjectRef("lies", "a", '"e"'), ObjectRef("lies", "b", '"e"', "v1"), ObjectRef("lies", "c")])
    sent = {e.key: (e.version, e.etag) for e in stub.requests[0].entries}
    assert sent == {"a": (None, '"e"'), "b": ("v1", None), "c": (None, None)}


def test_answers_are_asked_for_in_full(stub: StubS3) -> None:
    run(stub, refs("lies", "a"))
    assert b"<Quiet>true" not in stub.requests[0].body


def test_an_overwritten_object_is_kept(stub: StubS3) -> None:
    stub.put("lies", "a", b"new")
    outcomes = run(stub, [ObjectRef("lies", "a", '"old"')])
    assert states(outcomes) == {"a": "changed"}
    assert stub.keys("lies") == {"a"}


@pytest.mark.parametrize("key", ["", "x" * 1025, "\ud800", "a\x01/../b"])
def test_a_key_that_no_request_can_carry_is_refused_and_spoils_no_other(stub: StubS3, key: str) -> None:
    stub.put("lies", "good")
    assert states(run(stub, refs("lies", key, "good"))) == {key: "failed", "good": "deleted"}
    assert all(key not in r.keys for r in stub.requests)


def test_two_etags_for_one_key_delete_nothing(stub: StubS3) -> None:
    stub.put("lies", "a")
    items = [ObjectRef("lies", "a", '"1"'), ObjectRef("lies", "a", '"2"')]
    outcomes = run(stub, items)
    assert {(o.state, o.code) for o in outcomes.values()} == {(Outcome.FAILED, "two-etags")}
    assert not stub.requests


def test_a_version_named_with_two_etags_keeps_every_version_of_its_key(stub: StubS3) -> None:
    items = [
        ObjectRef("lies", "a", '"1"', "v1"),
        ObjectRef("lies", "a", '"2"', "v1"),
        ObjectRef("lies", "a", '"3"', "v2"),
    ]
    outcomes = run(stub, items)
    assert {(o.state, o.code) for o in outcomes.values()} == {(Outcome.FAILED, "two-etags")}
    assert not stub.requests


def test_one_object_named_twice_is_asked_for_once(stub: StubS3) -> None:
    stub.put("lies", "a")
    items = [ObjectRef("lies", "a", size=1), ObjectRef("lies", "a", size=None)]
    assert len(run(stub, items)) == 2
    assert stub.requests[0].keys == ("a",)


def test_content_md5_replaces_the_checksum(stub: StubS3) -> None:
    from safedelete.s3.client import connect

    stub.put("lies", "a")
    client = connect(endpoint_url=stub.endpoint, access_key="k", secret_key="s", content_md5=True).deleter
    delete_objects(client, "lies", refs("lies", "a"), gate=Gate(), clock=FakeClock())
    headers = stub.requests[0].headers
    assert "content-md5" in headers
    assert not [name for name in headers if name.startswith(("x-amz-checksum", "x-amz-sdk-checksum"))]


# --- versions ---


class Scripted:
    """A client that answers DeleteObjects by a function of the entries."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[list[tuple[str, str | None]]] = []

    def delete_objects(self, *, Bucket: str, Delete: Any) -> Any:
        entries = Delete["Objects"]
        self.asked.append([(e["Key"], e.get("VersionId")) for e in entries])
        return self.answer(entries)

    def delete_object(self, **options: Any) -> Any:
        return {"ResponseMetadata": {"HTTPStatusCode": 204}}


def scripted(client: Scripted, items: list[ObjectRef], **options: Any) -> dict[ObjectRef, Any]:
    fake: Any = client
    return delete_objects(fake, "b", items, gate=Gate(), clock=FakeClock(), effort=QUICK, **options)


def named(entries: Any, refuse: set[str] = frozenset()) -> Any:  # type: ignore[assignment]
    return {
        "Deleted": [e for e in entries if e["VersionId"] not in refuse],
        "Errors": [{**e, "Code": "AccessDenied"} for e in entries if e["VersionId"] in refuse],
    }


def test_the_current_version_goes_after_all_others() -> None:
    client = Scripted(named)
    scripted(client, [ObjectRef("b", "a", version=v) for v in ("v1", "v2", "v3")])
    assert client.asked == [[("a", "v1"), ("a", "v2")], [("a", "v3")]]


def test_the_current_version_stays_while_an_older_one_does() -> None:
    client = Scripted(lambda entries: named(entries, {"v1"}))
    outcomes = scripted(
        client,
        [ObjectRef("b", "a", version=v) for v in ("v1", "v2", "v3")] + [ObjectRef("b", "c", version="v9")],
    )
    assert {r.version: o.state.value for r, o in outcomes.items()} == {
        "v1": "failed",
        "v2": "deleted",
        "v3": "blocked",
        "v9": "deleted",
    }


def test_an_answer_in_another_order_settles_every_key_by_one_request() -> None:
    client = Scripted(lambda entries: {"Deleted": [{"Key": e["Key"]} for e in reversed(entries)]})
    outcomes = scripted(client, [ObjectRef("b", key) for key in "abc"])
    assert {o.state for o in outcomes.values()} == {Outcome.DELETED}
    assert len(client.asked) == 1


def test_two_versions_answered_by_their_key_alone_stay_unknown() -> None:
    items = [ObjectRef("b", "a", version=v) for v in ("v1", "v2", "v3")]
    outcomes = scripted(Scripted(lambda entries: {"Deleted": [{"Key": "a"} for _ in entries]}), items)
    assert {outcomes[ref].state for ref in items[:2]} == {Outcome.UNKNOWN}
    assert outcomes[items[2]].state is Outcome.BLOCKED


def test_a_marker_among_plain_answers_in_the_order_of_the_request_is_noticed() -> None:
    def answer(entries: Any) -> Any:
        return {
            "Deleted": [
                {"Key": e["Key"], **({"DeleteMarker": True} if e["Key"] == "b" else {})} for e in entries
            ]
        }

    outcomes = scripted(Scripted(answer), [ObjectRef("b", key) for key in "abc"])
    assert {r.key: o.state.value for r, o in outcomes.items()} == {
        "a": "deleted",
        "b": "failed",
        "c": "deleted",
    }


def test_a_marker_where_none_was_wanted_is_a_failure() -> None:
    def answer(entries: Any) -> Any:
        return {"Deleted": [{"Key": "a", "DeleteMarker": True, "DeleteMarkerVersionId": "m"}]}

    (outcome,) = scripted(Scripted(answer), [ObjectRef("b", "a")]).values()
    assert outcome.state is Outcome.FAILED
    (outcome,) = scripted(Scripted(answer), [ObjectRef("b", "a")], markers=True).values()
    assert outcome.state is Outcome.DELETED

    def by_its_id_alone(entries: Any) -> Any:
        return {"Deleted": [{"Key": "a", "DeleteMarkerVersionId": "m"}]}

    (outcome,) = scripted(Scripted(by_its_id_alone), [ObjectRef("b", "a")]).values()
    assert outcome.state is Outcome.FAILED


@pytest.mark.parametrize("word", ["True", "TRUE", "1", ""])
@pytest.mark.parametrize("client", ["reader", "deleter"], ids=["sdk", "fast"])
def test_a_marker_that_is_told_by_another_word_is_not_taken_for_a_deletion(
    stub: StubS3, client: str, word: str
) -> None:
    said = f"<DeleteResult><Deleted><Key>a</Key><DeleteMarker>{word}</DeleteMarker></Deleted></DeleteResult>"
    stub.always(answering(200, said.encode()))
    (ref,) = refs("lies", "a")
    found = delete_objects(
        getattr(reach(stub), client), "lies", [ref], gate=Gate(), clock=FakeClock(), effort=QUICK
    )
    assert found[ref].state is Outcome.UNKNOWN


def test_a_deletion_that_names_two_keys_is_one_of_neither(stub: StubS3) -> None:
    said = b"<DeleteResult><Deleted><Key>a</Key><Key>b</Key></Deleted></DeleteResult>"
    stub.always(answering(200, said))
    outcomes = run(stub, refs("lies", "a", "b"))
    assert {outcome.state for outcome in outcomes.values()} == {Outcome.UNKNOWN}


@pytest.mark.parametrize("made", ["v1", "m"])
def test_a_marker_that_was_made_where_a_version_was_to_go_is_no_deletion(made: str) -> None:
    def answer(entries: Any) -> Any:
        named = {"Key": "a", "VersionId": "v1", "DeleteMarker": True, "DeleteMarkerVersionId": made}
        return {"Deleted": [named]}

    (outcome,) = scripted(Scripted(answer), [ObjectRef("b", "a", None, "v1")]).values()
    assert (outcome.state is Outcome.DELETED) is (made == "v1"), "v1 may itself be a marker that was removed"


# --- any answer at all ---

MANY_KEYS = ["a", "b", "c", "d\x01", "é", "x/../y", ""]
KEYS = st.sampled_from(MANY_KEYS)
VERSIONS = st.sampled_from([None, "v1", "v2", "null"])
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "Key": st.sampled_from([*MANY_KEYS, None]),
        "VersionId": VERSIONS,
        "Code": st.sampled_from(
            [None, "", "AccessDenied", "SlowDown", "NoSuchKey", "PreconditionFailed", "Huh"]
        ),
        "Message": st.sampled_from([None, "", "m"]),
        "DeleteMarker": st.booleans(),
    },
)
ANSWER = st.fixed_dictionaries(
    {}, optional={"Deleted": st.lists(ITEM, max_size=4), "Errors": st.lists(ITEM, max_size=4)}
)
REFS = st.lists(
    st.builds(ObjectRef, st.just("b"), KEYS, st.sampled_from([None, '"1"', '"2"']), VERSIONS), max_size=8
)


@given(REFS, st.lists(ANSWER, min_size=1, max_size=4))
def test_outcomes_are_exactly_one_for_each_ref_whatever_is_answered(
    items: list[ObjectRef], answers: list[dict[str, Any]]
) -> None:
    turns = iter(answers * 100)
    outcomes = scripted(Scripted(lambda _: next(turns)), items)
    assert set(outcomes) == set(items)
    acknowledging = [e for a in answers for e in a.get("Deleted", ())]
    acknowledging += [e for a in answers for e in a.get("Errors", ()) if e.get("Code") == "NoSuchKey"]
    told = {e.get("Key") for e in acknowledging}
    for ref, outcome in outcomes.items():
        if outcome.state in ACKNOWLEDGED and "\x01" not in ref.key:
            assert ref.key in told


@given(st.lists(KEYS.filter(bool), max_size=8))
def test_an_honest_answer_settles_every_ref_by_one_request_a_lane(keys: list[str]) -> None:
    client = Scripted(lambda entries: {"Deleted": [{"Key": e["Key"]} for e in entries]})
    outcomes = scripted(client, refs("b", *keys))
    assert {o.state for o in outcomes.values()} <= {Outcome.DELETED}
    assert len(client.asked) <= 1


# --- on stores ---


def test_one_key_in_a_thousand_denied_by_policy_stays(weed: SeaweedFS, bucket: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from safedelete.testing.servers import RUNNER

    weed.create_bucket(bucket)
    keys = [f"d/{n:04}" for n in range(1000)]
    client = weed.client(max_pool_connections=16)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: client.put_object(Bucket=bucket, Key=key, Body=b"x"), keys))
    weed.deny(bucket, ["d/0517"])
    outcomes = delete_objects(
        reach(weed, RUNNER).deleter,
        bucket,
        refs(bucket, *keys),
        gate=Gate(),
        clock=FakeClock(),
        effort=QUICK,
    )
    assert {r.key: (o.state, o.code) for r, o in outcomes.items() if o.state is not Outcome.DELETED} == {
        "d/0517": (Outcome.FAILED, "AccessDenied")
    }
    assert len(outcomes) == 1000
    assert [o["Key"] for o in weed.client().list_objects_v2(Bucket=bucket)["Contents"]] == ["d/0517"]


def test_an_object_overwritten_meanwhile_is_kept_by_the_store(weed: SeaweedFS, bucket: str) -> None:
    weed.create_bucket(bucket)
    client = weed.client()
    old = client.put_object(Bucket=bucket, Key="a", Body=b"old")["ETag"]
    client.put_object(Bucket=bucket, Key="a", Body=b"new")
    for key in ("a", "a"):
        outcomes = delete_objects(
            reach(weed).deleter, bucket, [ObjectRef(bucket, key, old)], gate=Gate(), clock=FakeClock()
        )
        assert states(outcomes) == {"a": "changed"}
    assert client.get_object(Bucket=bucket, Key="a")["Body"].read() == b"new"


def test_a_missing_bucket_fails_each_key(server: SeaweedFS | Moto) -> None:
    outcomes = delete_objects(
        reach(server).deleter,
        "no-such-bucket-here",
        refs("no-such-bucket-here", "a"),
        gate=Gate(),
        clock=FakeClock(),
    )
    ((state, code, _),) = outcomes.values()
    assert (state, code) == (Outcome.FAILED, "NoSuchBucket")


def test_an_unreachable_endpoint_leaves_each_key_unknown() -> None:
    from safedelete.s3.client import connect

    client = connect(
        endpoint_url="http://127.0.0.1:1", access_key="k", secret_key="s", connect_timeout=0.5
    ).deleter
    outcomes = delete_objects(client, "b", refs("b", "a"), gate=Gate(), clock=FakeClock(), effort=QUICK)
    ((state, code, _),) = outcomes.values()
    assert (state, code) == (Outcome.UNKNOWN, "EndpointConnectionError")


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "ExpiredToken"), (405, "MethodNotAllowed"), (301, "PermanentRedirect"), (501, "NotImplemented")],
)
def test_what_goes_wrong_in_the_middle_leaves_the_rest_failed_and_is_not_asked_again(
    stub: StubS3, status: int, code: str
) -> None:
    for key in "abcd":
        stub.put("lies", key)
    stub.script(None)
    stub.always(refusing(status, code))
    outcomes = run(stub, refs("lies", *"abcd"), effort=Effort(chunk=2, lanes=1, attempts=4, pause=0.0))
    assert states(outcomes) == {"a": "deleted", "b": "deleted", "c": "failed", "d": "failed"}
    assert {o.code for o in outcomes.values()} == {"", code}
    assert stub.keys("lies") == {"c", "d"}

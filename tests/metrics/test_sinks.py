"""Each sink sends every number of an event, and only what is known."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from prometheus_client.parser import text_string_to_metric_families

from safedelete.core.event import ENDED, METRICS, STARTED, Ending, RunEvent, lasting, numbers
from safedelete.core.outcome import Outcome
from safedelete.errors import ConfigError, ExitCode
from safedelete.metrics import prometheus
from safedelete.metrics.cloudwatch import CloudWatchSink
from safedelete.metrics.lines import emf
from safedelete.metrics.notify import AppriseNote, SnsNote, WebhookNote
from safedelete.metrics.otlp import OtlpSink
from safedelete.metrics.parse import notes, sinks
from safedelete.metrics.ping import PingSink, as_uuid
from safedelete.metrics.prometheus import PushgatewaySink, TextfileSink
from safedelete.testing.servers import Moto
from tests.metrics.conftest import AT, RUN, event
from tests.metrics.listening import Listener

HOUR = timedelta(hours=1)
OWN = {"job_name": "expired-uploads", "environment": "test"}
APART = {ENDED[Ending.SKIPPED], ENDED[Ending.CRASHED]}


def test_an_end_tells_of_every_metric_but_the_start(success: RunEvent) -> None:
    assert set(numbers(success)) == set(METRICS) - {STARTED}
    assert set(lasting(success)) == set(METRICS) - {STARTED} - APART


def test_exactly_one_ending_is_1_and_every_other_is_0() -> None:
    for how in Ending:
        found = numbers(event(how, ExitCode.DONE))
        assert {other: found[ENDED[other]] for other in Ending} == {o: float(o is how) for o in Ending}


def test_what_is_not_known_is_left_out_and_never_zero() -> None:
    found = numbers(event(Ending.FAILED, ExitCode.STORE, planned_rows=None, planned_bytes=None, limit=None))
    names = {metric.name for metric in found}
    assert "PlannedObjects" in names
    assert not names & {"PlannedRows", "PlannedBytes", "GuardLimit"}


@pytest.mark.parametrize("how", [Ending.SKIPPED, Ending.CRASHED])
def test_a_run_that_did_not_work_says_that_and_nothing_else(how: Ending) -> None:
    made = event(how, ExitCode.SKIPPED)
    assert set(numbers(made)) == set(ENDED.values())
    assert lasting(made) == {ENDED[how]: 1}


def test_an_embedded_metric_line_declares_and_holds_every_number(success: RunEvent) -> None:
    line = json.loads(json.dumps(emf(success)))
    (declared,) = line["_aws"]["CloudWatchMetrics"]
    assert declared["Namespace"] == "safedelete"
    assert {m["Name"]: line[m["Name"]] for m in declared["Metrics"]} == {
        m.name: n for m, n in numbers(success).items()
    }
    (named,) = declared["Dimensions"]
    assert {name: line[name] for name in named} == OWN
    assert line["_aws"]["Timestamp"] == 1780283790000
    # CloudWatch takes at most 100 metrics in one line.
    assert len(declared["Metrics"]) < 100


def test_cloudwatch_holds_every_number_afterwards(moto_s3: Moto, success: RunEvent) -> None:
    client: Any = boto3.client("cloudwatch", endpoint_url=moto_s3.endpoint, region_name="us-east-1")
    CloudWatchSink(lambda: client).send(success)
    held = {
        metric["MetricName"]: metric["Dimensions"]
        for page in client.get_paginator("list_metrics").paginate(Namespace="safedelete")
        for metric in page["Metrics"]
    }
    assert set(held) == {metric.name for metric in numbers(success)}
    assert all({one["Name"]: one["Value"] for one in whose} == OWN for whose in held.values())


@pytest.mark.parametrize(
    ("environment", "spelt"), [("production", "production"), ("prüfung", "pr\\xfcfung"), ("", None)]
)
def test_cloudwatch_is_told_the_environment_as_it_takes_it_and_never_an_empty_one(
    success: RunEvent, environment: str, spelt: str | None
) -> None:
    made = replace(success, environment=environment)
    sent: list[Any] = []

    class Client:
        def put_metric_data(self, **request: Any) -> None:
            sent.extend(request["MetricData"])

    CloudWatchSink(Client).send(made)  # type: ignore[arg-type]
    whose = {"job_name": "expired-uploads"} | ({} if spelt is None else {"environment": spelt})
    assert all({one["Name"]: one["Value"] for one in metric["Dimensions"]} == whose for metric in sent)
    line = emf(made)
    (named,) = line["_aws"]["CloudWatchMetrics"][0]["Dimensions"]
    assert {name: line[name] for name in named} == whose


# --- Prometheus


def read(path: Path) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }


def file_in(folder: Path) -> Path:
    (path,) = folder.glob("*.prom")
    return path


def value(path: Path, series: str, **labels: str) -> float | None:
    return read(path).get((series, tuple(sorted({**OWN, **labels}.items()))))


def test_a_text_file_holds_every_number_and_nothing_stays_beside_it(
    tmp_path: Path, success: RunEvent
) -> None:
    TextfileSink(tmp_path).send(success)
    (path,) = tmp_path.iterdir()
    assert path.name == "safedelete_test_expired-uploads.prom"
    assert path.stat().st_mode & 0o044 == 0o044
    for metric, number in lasting(success).items():
        assert value(path, metric.series, **dict(metric.labels)) == number
    assert value(path, "safedelete_last_success_timestamp_seconds") == 1780283790


@pytest.mark.parametrize("how", [None, *(e for e in Ending if e is not Ending.SUCCEEDED)])
def test_no_later_event_takes_the_last_success_away(
    tmp_path: Path, success: RunEvent, start: RunEvent, how: Ending | None
) -> None:
    sink = TextfileSink(tmp_path)
    sink.send(success)
    sink.send(start if how is None else event(how, ExitCode.STORE))
    path = file_in(tmp_path)
    assert value(path, "safedelete_last_success_timestamp_seconds") == 1780283790
    says_nothing_of_it = how in (None, Ending.SKIPPED, Ending.CRASHED)
    assert value(path, "safedelete_last_run", ending="succeeded") == float(says_nothing_of_it)
    assert value(path, "safedelete_last_items", outcome=Outcome.GONE.value) == 2


@pytest.mark.parametrize(
    ("how", "series"), [(Ending.SKIPPED, "safedelete_last_skip"), (Ending.CRASHED, "safedelete_last_crash")]
)
def test_a_skip_and_a_crash_touch_no_series_but_their_own_and_no_run_takes_them_away(
    tmp_path: Path, success: RunEvent, how: Ending, series: str
) -> None:
    sink = TextfileSink(tmp_path)
    sink.send(event(Ending.FAILED, ExitCode.STORE))
    path = file_in(tmp_path)
    before = read(path)
    sink.send(event(how, ExitCode.SKIPPED, started_at=AT + HOUR, ended_at=AT + HOUR))
    own = (f"{series}_timestamp_seconds", tuple(sorted(OWN.items())))
    assert read(path) == before | {own: (AT + HOUR).timestamp()}
    assert value(path, "safedelete_last_run", ending="failed") == 1
    sink.send(success)
    assert read(path)[own] == (AT + HOUR).timestamp()


def test_two_that_write_one_file_lose_nothing_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, success: RunEvent
) -> None:
    sink, real = TextfileSink(tmp_path), prometheus._read
    sink.send(success)
    within, go_on = threading.Event(), threading.Event()

    def slowly(path: Path) -> str:
        text = real(path)
        if threading.current_thread().name == "skipped":
            within.set()
            go_on.wait(10)
        return text

    monkeypatch.setattr(prometheus, "_read", slowly)
    skipped = threading.Thread(
        target=sink.send, args=[event(Ending.SKIPPED, ExitCode.SKIPPED)], name="skipped"
    )
    failed = threading.Thread(target=sink.send, args=[event(Ending.FAILED, ExitCode.STORE)])
    skipped.start()
    assert within.wait(10)
    failed.start()
    failed.join(0.2)
    go_on.set()
    for thread in (skipped, failed):
        thread.join(10)
    path = file_in(tmp_path)
    assert value(path, "safedelete_last_run", ending="failed") == 1
    assert value(path, "safedelete_last_skip_timestamp_seconds") == 1780283790
    assert len(list(tmp_path.iterdir())) == 1


def test_jobs_and_environments_that_share_a_file_keep_each_others_numbers(
    tmp_path: Path, success: RunEvent
) -> None:
    sink = TextfileSink(tmp_path / "all.prom")
    for whose in ({}, {"job": "logins"}, {"environment": 'a "b" \\'}):
        sink.send(replace(success, **whose))
        for _ in range(2):
            sink.send(replace(success, **whose, ending=Ending.FAILED))
    held = read(tmp_path / "all.prom")
    for whose in ({}, {"job_name": "logins"}, {"environment": 'a "b" \\'}):
        labels = {**OWN, **whose}
        assert held["safedelete_last_run", tuple(sorted({**labels, "ending": "failed"}.items()))] == 1
        assert held["safedelete_last_success_timestamp_seconds", tuple(sorted(labels.items()))] == 1780283790
    assert len([series for series, _ in held if series == "safedelete_last_duration_seconds"]) == 3


def test_environments_of_one_host_have_a_file_each(tmp_path: Path, success: RunEvent) -> None:
    sink = TextfileSink(tmp_path)
    for environment in ("production", "staging", ""):
        sink.send(replace(success, environment=environment))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "safedelete_expired-uploads.prom",
        "safedelete_production_expired-uploads.prom",
        "safedelete_staging_expired-uploads.prom",
    ]


def test_a_file_that_breaks_off_midway_is_never_seen(tmp_path: Path, success: RunEvent) -> None:
    sink = TextfileSink(tmp_path)
    sink.send(success)
    path = file_in(tmp_path)
    before = path.read_text()
    real = Path.replace
    with pytest.MonkeyPatch.context() as patch:

        def full(scratch: Path, target: Path) -> Path:
            assert path.read_text() == before
            raise OSError(28, "No space left on device")

        patch.setattr(Path, "replace", full)
        with pytest.raises(OSError, match="No space"):
            sink.send(event(Ending.FAILED, ExitCode.STORE))
    assert Path.replace is real
    assert path.read_text() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_the_pushgateway_is_added_to_and_never_replaced(listener: Listener, success: RunEvent) -> None:
    PushgatewaySink(listener.url).send(success)
    (sent,) = listener.sent
    group = "/metrics/job/safedelete/environment/test/job_name/expired-uploads"
    assert (sent.method, sent.path) == ("POST", group)
    assert b"safedelete_last_success_timestamp_seconds 1.78028379e+09" in sent.body
    assert b"job_name=" not in sent.body


def test_a_pushgateways_password_goes_as_a_header(listener: Listener, start: RunEvent) -> None:
    PushgatewaySink(listener.url.replace("http://", "http://me:s%20cret@")).send(start)
    assert listener.sent[0].headers["Authorization"] == "Basic bWU6cyBjcmV0"


def test_otlp_is_delivered_before_it_returns(listener: Listener, success: RunEvent) -> None:
    OtlpSink(f"{listener.url}/v1/metrics").send(success)
    (sent,) = listener.sent
    assert sent.path == "/v1/metrics"
    for metric in lasting(success):
        assert metric.series.encode() in sent.body
    assert b"environment\x12\x06\n\x04test" in sent.body
    listener.status = 400
    with pytest.raises(ConnectionError):
        OtlpSink(f"{listener.url}/v1/metrics").send(success)


# --- pings


def test_the_run_id_of_a_ping_is_a_uuid_of_the_same_number() -> None:
    assert as_uuid("0" * 26) == "00000000-0000-0000-0000-000000000000"
    assert as_uuid("7" + "Z" * 25) == "ffffffff-ffff-ffff-ffff-ffffffffffff"


@pytest.mark.parametrize(
    ("how", "code", "path"),
    [
        (None, ExitCode.DONE, "/check/start"),
        (Ending.SUCCEEDED, ExitCode.DONE, "/check"),
        (Ending.FAILED, ExitCode.STORE, "/check/7"),
        (Ending.FAILED, ExitCode.UNEXPECTED, "/check/1"),
        (Ending.INTERRUPTED, ExitCode.INCOMPLETE, "/check/4"),
        (Ending.REFUSED, ExitCode.REFUSED, "/check/3"),
        (Ending.SKIPPED, ExitCode.SKIPPED, "/check/log"),
        (Ending.CRASHED, None, "/check/fail"),
    ],
)
def test_each_end_has_its_ping(
    listener: Listener, start: RunEvent, how: Ending | None, code: ExitCode, path: str
) -> None:
    PingSink(f"{listener.url}/check", lambda: "a line").send(start if how is None else event(how, code))
    (sent,) = listener.sent
    assert sent.path == f"{path}?rid={as_uuid(RUN)}"
    assert sent.body == (b"" if how is None else b"3 of 21 are gone.\na line")


def test_a_ping_keeps_what_its_address_asks_for_and_names_the_job(
    listener: Listener, start: RunEvent
) -> None:
    PingSink(f"{listener.url}/key/{{job}}?create=1").send(start)
    assert listener.paths == [f"/key/expired-uploads/start?create=1&rid={as_uuid(RUN)}"]


def test_a_long_log_is_cut_at_its_beginning(listener: Listener, success: RunEvent) -> None:
    PingSink(listener.url, lambda: "x" * 20_000 + "end").send(success)
    assert len(listener.sent[0].body) == 10_000
    assert listener.sent[0].body.endswith(b"end")


def test_a_password_in_an_address_goes_as_a_header_and_is_never_shown(
    listener: Listener, start: RunEvent
) -> None:
    sink = PingSink(listener.url.replace("http://", "http://me:s%20cret@") + "/uuid")
    sink.send(start)
    assert listener.sent[0].headers["Authorization"] == "Basic bWU6cyBjcmV0"
    assert "cret" not in sink.name
    assert "uuid" not in sink.name


# --- people


def test_a_webhook_is_told_the_sentence_the_codes_and_the_command(listener: Listener) -> None:
    refused = event(
        Ending.REFUSED, ExitCode.REFUSED, codes=("SD101",), approve=f"safedelete approve {RUN} --file jobs.py"
    )
    WebhookNote(f"{listener.url}/hook").send(refused)
    body = json.loads(listener.sent[0].body)
    assert body["text"].splitlines() == [
        "safedelete: expired-uploads (test) refused",
        "3 of 21 are gone.",
        f"Run {RUN}, started 2026-06-01 03:15 UTC.",
        "Findings: SD101",
        f"If this is right: safedelete approve {RUN} --file jobs.py",
    ]
    assert body["state"] == "refused"
    assert body["codes"] == ["SD101"]


def test_nobody_is_called_for_a_success_or_a_start(
    listener: Listener, success: RunEvent, start: RunEvent
) -> None:
    for quiet in (success, start, event(Ending.SKIPPED, ExitCode.SKIPPED)):
        WebhookNote(listener.url).send(quiet)
    assert listener.sent == []


def test_a_topic_is_published_to_in_its_own_region() -> None:
    published: list[tuple[str, dict[str, str]]] = []

    class Client:
        def __init__(self, region: str) -> None:
            self.region = region

        def publish(self, **message: str) -> None:
            published.append((self.region, message))

    SnsNote("arn:aws:sns:eu-west-1:123456789012:alerts", Client).send(event(Ending.FAILED, ExitCode.STORE))
    ((region, message),) = published
    assert region == "eu-west-1"
    assert message["TopicArn"] == "arn:aws:sns:eu-west-1:123456789012:alerts"
    assert message["Subject"] == "safedelete: expired-uploads (test) failed"


# Apprise's own imports, on Python 3.11 and 3.12.
@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
def test_an_address_that_apprise_cannot_deliver_to_is_an_error(listener: Listener) -> None:
    host = listener.url.removeprefix("http://")
    AppriseNote(f"json://{host}/hook").send(event(Ending.FAILED, ExitCode.STORE))
    assert "failed" in json.loads(listener.sent[0].body)["title"]
    listener.status = 500
    with pytest.raises(ConnectionError):
        AppriseNote(f"json://{host}/hook").send(event(Ending.FAILED, ExitCode.STORE))


# --- the variables


@pytest.mark.parametrize(
    "text",
    [
        "logs",
        "ping",
        "ping:ftp://x/y",
        "pushgateway:",
        "textfile:",
        "emf:x",
        "otlp:nowhere",
    ],
)
def test_a_sink_that_is_not_known_is_an_error_that_says_what_is(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        sinks(text)
    assert "SAFEDELETE_METRICS" in str(error.value)
    assert error.value.hint


@pytest.mark.parametrize("text", ["alerts@example.com", "arn:aws:sqs:eu-west-1:1:q", "arn:aws:sns:topic"])
def test_somebody_who_cannot_be_called_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="SAFEDELETE_NOTIFY"):
        notes(text)


def test_several_are_separated_by_commas_or_blanks(tmp_path: Path) -> None:
    found = sinks(f"log, emf textfile:{tmp_path},ping:https://hc.example/uuid")
    assert [sink.name for sink in found] == [
        "log",
        "emf",
        f"textfile:{tmp_path}",
        "ping:https://hc.example/…",
    ]
    assert [sink.name for sink in notes("https://me:pw@example.com/secret slack://a/b/c")] == [
        "notify:https://example.com/…",
        "notify:slack",
    ]

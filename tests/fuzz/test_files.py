"""What people and ledgers hold: job files, schedules, sealed batches and the ledger's JSON."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safedelete.core.item import ObjectRef, SealedRow
from safedelete.core.outcome import ItemOutcome, Outcome, Tally
from safedelete.core.plan import Plan, TargetPlan
from safedelete.core.schedule import parse
from safedelete.core.seal import RowBatch, decode, encode
from safedelete.errors import ConfigError, LedgerError, SafeDeleteError
from safedelete.ledger import codec
from safedelete.loader import load
from tests.fuzz import FUZZ
from tests.fuzz.edits import edited

JOBS = b"""from datetime import timedelta

from sqlalchemy import Column, DateTime, Integer, MetaData, Table

from safedelete import Purge, Rows, job, older_than

t = Table("t", MetaData(), Column("id", Integer, primary_key=True), Column("at", DateTime))
p = Purge("old", Rows(t, older_than(t.c.at, days=90)), schedule="rate(1 day)", timeout=timedelta(minutes=10))


@job("reminders", schedule="15 3 * * *", timeout=timedelta(minutes=5))
def reminders(run):
    run.processed(1)
"""
CODE = (
    b"(",
    b")",
    b"\n",
    b"0",
    b"-1",
    b"None",
    b"days=",
    b'"',
    b"p = ",
    b"'''",
    b"\t",
    b"t.c.id",
    b"\\",
    b"\0",
    b"async ",
)
LINES = JOBS.splitlines(keepends=True)


@FUZZ
@example(text=JOBS.replace(b'"15 3', b'"(15 3'))
@given(
    text=st.one_of(
        edited(JOBS, CODE),
        st.permutations(LINES).map(b"".join),
        st.lists(st.sampled_from(LINES)).map(b"".join),
    )
)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_a_job_file_loads_or_is_refused_with_its_name(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "jobs.py"
    path.write_bytes(text)
    try:
        found = load(path)
    except ConfigError as error:
        assert "jobs.py" in str(error)
        assert error.hint
        return
    assert found.jobs


FIELDS = st.text("0123456789*/,-?LW#() ", max_size=6)
SCHEDULES = st.one_of(
    edited(b"cron(15 3 ? * 2#1 *)", (b"*", b"?", b"L", b"W", b",", b"-", b"/0", b"99999999999")).map(
        lambda b: b.decode("latin-1")
    ),
    edited(b"rate(1 day)", (b"0", b"days", b"-", b"1e9")).map(lambda b: b.decode("latin-1")),
    edited(b"*/15 3 1-5 JAN MON", (b"*", b"/", b",", b"7-1", b"@daily", b"OnCalendar=")).map(
        lambda b: b.decode("latin-1")
    ),
    st.lists(FIELDS, max_size=7).map(" ".join),
    st.text(max_size=20),
)


@FUZZ
@given(SCHEDULES, st.sampled_from(["UTC", "Europe/Berlin", "Nowhere/Land", "", "../etc/passwd"]))
def test_a_schedule_is_understood_or_refused(text: str, zone: str) -> None:
    now = datetime(2026, 3, 28, 12, tzinfo=UTC)
    try:
        schedule = parse(text, zone, anchor=now)
    except ConfigError as error:
        assert "Schedule" in str(error) or "zone" in str(error)
        return
    following = schedule.next(now)
    assert following is None or following > now


BATCH = encode(
    RowBatch(
        (
            SealedRow((1, "a"), (ObjectRef("acme", "up/1", '"e"', None, 3),)),
            SealedRow((7, "b"), (ObjectRef("acme", "up/7", None, "v1", 4), ObjectRef("other", "x"))),
        )
    )
)
TOKENS = (
    b"null",
    b"-1",
    b"[]",
    b"{}",
    b'"rows"',
    b"true",
    b"1e999",
    b"NaN",
    b'"b"',
    b",",
    b"[[",
    b"99999999999999999999",
)


@FUZZ
@given(edited(zlib.decompress(BATCH.data), TOKENS))
def test_a_sealed_document_leads_back_to_itself_or_is_refused(document: bytes) -> None:
    data = zlib.compress(document)
    try:
        batch = decode(data, hashlib.sha256(data).hexdigest())
    except LedgerError as error:
        assert error.hint
        return
    # Nothing is read out of it that sealing it would not have written.
    assert json.loads(zlib.decompress(encode(batch).data)) == json.loads(document)


AT = datetime(2026, 1, 1, tzinfo=UTC)
TARGET = TargetPlan(name="t", kind="rows", items=3, eligible=3, objects=2, total=9, cutoff=AT)
READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "plan": (
        codec.dump_plan(Plan(job="j", as_of=AT, fingerprint="f", targets=(TARGET,), digest="d")),
        lambda text: codec.load_plan(text, "x"),
    ),
    "tallies": (
        codec.dump_tallies({"t": Tally(deleted=2, failed=1)}),
        lambda text: codec.load_tallies(text, "x"),
    ),
    "outcomes": (
        codec.dump_outcomes({1: ItemOutcome(Outcome.FAILED, "c", "d")}),
        lambda text: codec.load_outcomes(text, "x"),
    ),
    "indexes": (codec.dump_indexes([1, 2, 3, 7]), lambda text: codec.load_indexes(text, "x", items=9)),
    "accepts": (
        '[{"code":"SD101","target":"uploads","limit":5}]',
        lambda text: codec.load_accepts(text, "x"),
    ),
    "decision": ('{"approved":true,"value":{}}', lambda text: codec.load_decision(text, "x")),
}


@FUZZ
@given(st.sampled_from(sorted(READERS)), st.data())
def test_the_ledgers_json_is_read_or_called_damaged(kind: str, data: st.DataObject) -> None:
    written, read = READERS[kind]
    text = data.draw(edited(written.encode(), TOKENS)).decode("utf-8", "surrogateescape")
    try:
        read(text)
    except SafeDeleteError as error:
        assert isinstance(error, LedgerError)
        assert error.hint

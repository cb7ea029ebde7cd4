"""A lab runs a purge as it is declared, in a world of its own, and nothing of it touches the other one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.httpsession import URLLib3Session
from moto.core.models import botocore_stubber
from sqlalchemy import (
    Column,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    delete,
    event,
    insert,
    select,
    update,
)

from examples.retention import Upload, logins, scratch, uploads
from safedelete import Purge, Rows
from safedelete.core.run import RunState
from safedelete.errors import ConfigError, ExitCode, RefusedError
from safedelete.ledger.setup import create
from safedelete.locks import lease
from safedelete.testing import Lab
from safedelete.testing.memory import Killed

B = "acme-uploads"
ROOT = Path(__file__).resolve().parents[2]


def upload(lab: Lab, number: int, *, days: float = 0) -> None:
    key = f"{number}.jpg"
    expires = lab.clock.now() + timedelta(days=days)
    lab.add(Upload, id=number, expires_at=expires, legal_hold=False, s3_key=key)
    lab.put(B, key)


def ids(lab: Lab) -> list[int]:
    return [row["id"] for row in lab.rows(Upload)]


def test_a_row_goes_with_its_object_when_its_time_has_passed_and_not_at_that_instant(
    purge_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFEDELETE_LEDGER_URL", "postgresql://production/ledger")
    monkeypatch.setenv("SAFEDELETE_METRICS", "cloudwatch")
    lab = purge_lab(uploads)
    upload(lab, 1)
    upload(lab, 2, days=30)
    assert lab.run(uploads).total.total == 0
    lab.clock.advance(seconds=1)
    report = lab.run(uploads)
    assert (report.state, report.total.deleted) == (RunState.SUCCEEDED, 1)
    assert ids(lab) == [2]
    assert lab.store.keys(B) == {"2.jpg"}


def test_what_the_purge_declares_stays_as_it_was(purge_lab: Callable[..., Lab]) -> None:
    lab = purge_lab(uploads, logins, scratch)
    mine = lab.bound(uploads)
    assert uploads.database is None
    target = uploads.targets[0]
    assert isinstance(target, Rows)
    assert target.owns[0].client is None
    assert uploads.beside == ()
    assert [other.name for other in mine.beside] == ["login-events", "scratch-objects"]
    assert lab.bound(uploads) is mine


def test_a_denied_object_keeps_its_row_and_the_next_night_takes_both(purge_lab: Callable[..., Lab]) -> None:
    lab = purge_lab(uploads)
    for number in (1, 2):
        upload(lab, number, days=-1)
    lab.store.deny(B, ["1.jpg"])
    assert lab.run(uploads).exit_code is ExitCode.STORE
    assert ids(lab) == [1]
    assert lab.store.keys(B) == {"1.jpg"}
    lab.store.lift(B)
    lab.clock.advance(days=1)
    assert lab.run(uploads).exit_code is ExitCode.DONE
    assert ids(lab) == []


def test_objects_under_a_prefix_are_as_old_as_they_were_put(purge_lab: Callable[..., Lab]) -> None:
    lab = purge_lab(scratch)
    lab.put("acme-scratch", "tmp/old", age=timedelta(days=7, seconds=1))
    lab.put("acme-scratch", "tmp/new", age=timedelta(days=7))
    lab.put("acme-scratch", "other/old", age=timedelta(days=70))
    lab.run(scratch)
    assert lab.store.keys("acme-scratch") == {"tmp/new", "other/old"}


def test_a_refused_plan_is_refused_where_nobody_approves(purge_lab: Callable[..., Lab]) -> None:
    lab = purge_lab(uploads)
    upload(lab, 1, days=-1)
    with pytest.raises(RefusedError):
        lab.run(uploads, approve=False)
    assert ids(lab) == [1]


def test_between_plan_and_execution_anything_may_happen(purge_lab: Callable[..., Lab]) -> None:
    lab = purge_lab(uploads)
    for number in (1, 2):
        upload(lab, number, days=-1)

    def held() -> None:
        with lab.engine.begin() as connection:
            connection.execute(update(Upload).where(Upload.id == 1).values(legal_hold=True))

    report = lab.run(uploads, between=held)
    assert (report.total.deleted, report.total.changed) == (1, 1)
    assert ids(lab) == [1]
    assert lab.store.keys(B) == {"1.jpg"}


def test_a_run_that_dies_after_the_objects_went_is_finished_by_the_next(
    purge_lab: Callable[..., Lab],
) -> None:
    lab = purge_lab(uploads)
    upload(lab, 1, days=-1)
    lab.kill_after_objects()
    with pytest.raises(Killed):
        lab.run(uploads)
    assert ids(lab) == [1]
    assert lab.store.keys(B) == set()
    lab.revive()
    report = lab.run(uploads)
    assert (report.resumed, report.exit_code) == (True, ExitCode.DONE)
    assert ids(lab) == []


def test_the_dead_write_nothing_more(purge_lab: Callable[..., Lab]) -> None:
    lab = purge_lab(uploads)
    upload(lab, 1, days=-1)
    lab.kill_at(1)
    with pytest.raises(Killed):
        lab.run(uploads)
    with pytest.raises(Killed):
        lab.client.delete_object(Bucket=B, Key="1.jpg")
    with pytest.raises(Killed), lab.engine.begin() as connection:
        connection.execute(delete(Upload))
    assert ids(lab) == [1]
    assert lab.store.keys(B) == {"1.jpg"}


def test_a_database_that_has_the_tables_already_is_no_scratch_database(sqlite_url: str) -> None:
    metadata = MetaData()
    table = Table("things", metadata, Column("id", Integer, primary_key=True))
    purge = Purge(
        "things",
        Rows(table, table.c.id > 0, anytime=True),
        schedule="rate(1 day)",
        timeout=timedelta(minutes=1),
    )
    engine = create_engine(sqlite_url)
    metadata.create_all(engine)
    engine.dispose()
    with pytest.raises(ConfigError, match="'things' already"), Lab(purge, url=sqlite_url):
        pass


SPACED = Table("things", MetaData(schema="app"), Column("id", Integer, primary_key=True))
IN_A_SCHEMA = Purge(
    "things",
    Rows(SPACED, SPACED.c.id > 0, anytime=True),
    schedule="rate(1 day)",
    timeout=timedelta(minutes=1),
)


def test_a_table_that_is_there_in_its_schema_is_seen_and_keeps_its_rows(
    sqlite_url: str, tmp_path: Path
) -> None:
    place = tmp_path / "app.sqlite3"

    def attach(connection: Any, _: object) -> None:
        connection.execute(f"ATTACH DATABASE '{place}' AS app")

    event.listen(Engine, "connect", attach)
    try:
        with Lab(IN_A_SCHEMA, url=sqlite_url) as lab:
            lab.add(SPACED, id=1)
            assert len(lab.rows(SPACED)) == 1
        engine = create_engine(sqlite_url)
        SPACED.metadata.create_all(engine)
        with engine.begin() as connection:
            connection.execute(insert(SPACED).values(id=7))
        with pytest.raises(ConfigError, match=r"'app\.things' already"), Lab(IN_A_SCHEMA, url=sqlite_url):
            pass
        with engine.connect() as connection:
            assert connection.scalars(select(SPACED.c.id)).all() == [7]
        engine.dispose()
    finally:
        event.remove(Engine, "connect", attach)


def test_a_database_with_a_ledger_is_no_scratch_database(sqlite_url: str) -> None:
    engine = create_engine(sqlite_url)
    create(engine, lease.metadata)
    engine.dispose()
    with pytest.raises(ConfigError, match="already"), Lab(uploads, url=sqlite_url):
        pass


def test_a_table_in_a_schema_needs_a_database_that_has_it() -> None:
    with pytest.raises(ConfigError, match=r"app\.things is in one"), Lab(IN_A_SCHEMA):
        pass


def test_a_client_of_the_first_lab_is_answered_by_the_second(purge_lab: Callable[..., Lab]) -> None:
    first = purge_lab(uploads)
    client = first.client
    second = purge_lab(uploads)
    client.put_object(Bucket=B, Key="a.jpg", Body=b"x")
    assert second.store.keys(B) == {"a.jpg"}
    second.stop()
    first.put(B, "b.jpg")
    client.delete_object(Bucket=B, Key="b.jpg")
    assert "b.jpg" not in first.store.keys(B)


@pytest.mark.parametrize("known_to_moto", [True, False])
def test_a_client_made_before_the_lab_reaches_nothing_until_it_is_adopted(
    monkeypatch: pytest.MonkeyPatch, known_to_moto: bool
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    early = boto3.session.Session().client("s3", region_name="us-east-1")
    if not known_to_moto:
        early.meta.events.unregister("before-send", botocore_stubber)
    with Lab(uploads) as lab:
        lab.put(B, "a.jpg")
        with pytest.raises(ConfigError, match=r"DELETE to .*amazonaws.com was not sent"):
            early.delete_object(Bucket=B, Key="a.jpg")
        assert lab.store.keys(B) == {"a.jpg"}
        lab.store.adopt(early)
        early.delete_object(Bucket=B, Key="a.jpg")
        assert lab.store.keys(B) == set()
    assert URLLib3Session.send.__module__ == "botocore.httpsession", "the way out is open again"


def test_the_plugin_loads_nothing_of_the_package_before_a_test_asks_for_it() -> None:
    code = (
        "import sys, safedelete.testing.plugin\n"
        "heavy = {'sqlalchemy', 'boto3', 'botocore', 'moto', 'hypothesis', 'safedelete.declare'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

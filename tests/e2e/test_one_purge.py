"""One purge from the job file to the verified end, and what it keeps when the world changes under it."""

from __future__ import annotations

import sqlalchemy as sa

from tests.e2e.world import World, before_execute, outcomes, uploads


def test_a_purge_deletes_what_is_due_and_nothing_else(world: World) -> None:
    jobs = world.ready(due=5)
    ran = world.cli("run", jobs, "--json", expect=0)
    assert world.rows() == world.objects() == set(range(6, 21))
    assert ran.document["outcomes"]["uploads"]["deleted"] == 5
    assert ran.document["state"] == "succeeded"


def test_a_second_run_finds_nothing_and_succeeds(world: World) -> None:
    jobs = world.ready()
    world.cli("run", jobs, expect=0)
    again = world.cli("run", jobs, "--json", expect=0)
    assert again.document["outcomes"]["uploads"]["deleted"] == 0
    assert len(world.rows()) == len(world.objects()) == 9


def test_row_survives_when_its_object_is_denied_after_the_preflight(world: World) -> None:
    jobs = world.ready()
    with before_execute(lambda: world.store.deny(world.bucket, ["up/000002.bin"])):
        ran = world.cli("run", jobs, "--json", expect=7)
    assert world.rows() & {1, 2, 3} == world.objects() & {1, 2, 3} == {2}
    shown = world.cli("show", ran.run, expect=0).out
    assert "up/000002.bin" in shown
    assert "AccessDenied" in shown
    assert outcomes(world.shown(ran.run)) == {
        1: ("deleted", ""),
        2: ("failed", "AccessDenied"),
        3: ("deleted", ""),
    }


def test_the_output_of_a_partial_run_names_the_denied_key(world: World) -> None:
    jobs = world.ready()
    with before_execute(lambda: world.store.deny(world.bucket, ["up/000002.bin"])):
        ran = world.cli("run", jobs, expect=7)
    assert "up/000002.bin" in ran.out
    kept = [line for line in ran.log if line["event"] == "not deleted"]
    assert [line["code"] for line in kept] == ["AccessDenied"]


def test_row_that_is_renewed_before_its_batch_keeps_row_and_object(world: World) -> None:
    jobs = world.ready()
    renew = "UPDATE uploads SET expires_at = '2099-01-01 00:00:00' WHERE id = 2"
    with before_execute(lambda: world.sql(renew)):
        ran = world.cli("run", jobs, "--json", expect=0)
    assert world.rows() & {1, 2, 3} == world.objects() & {1, 2, 3} == {2}
    assert outcomes(world.shown(ran.run))[2] == ("changed", "predicate")


def test_row_put_on_hold_after_a_saved_plan_keeps_row_and_object(world: World) -> None:
    jobs = world.ready()
    saved = world.cli("plan", jobs, "--save", "--json", expect=0).document[0]["run"]
    with world.engine.begin() as connection:
        connection.execute(sa.update(uploads).where(uploads.c.id == 3).values(hold=True))
    world.cli("execute", saved, "--file", jobs, expect=0)
    assert world.rows() & {1, 2, 3} == world.objects() & {1, 2, 3} == {3}


def test_row_that_became_due_after_the_plan_is_not_deleted(world: World) -> None:
    jobs = world.ready()
    saved = world.cli("plan", jobs, "--save", "--json", expect=0).document[0]["run"]
    world.sql("UPDATE uploads SET expires_at = '2020-01-01 00:00:00' WHERE id = 4")
    world.cli("execute", saved, "--file", jobs, expect=0)
    assert world.rows() & {1, 2, 3, 4} == world.objects() & {1, 2, 3, 4} == {4}


def test_row_that_names_another_object_since_is_kept_with_both(world: World) -> None:
    jobs = world.ready()
    world.put("up/000099.bin")
    rename = "UPDATE uploads SET s3_key = 'up/000099.bin' WHERE id = 1"
    with before_execute(lambda: world.sql(rename)):
        ran = world.cli("run", jobs, "--json", expect=0)
    assert world.rows() & {1, 2, 3} == {1}
    assert {1, 99} <= world.objects()
    assert outcomes(world.shown(ran.run))[1] == ("changed", "objects")


def test_object_overwritten_since_it_was_sealed_is_kept_where_a_column_holds_its_etag(world: World) -> None:
    world.seed()
    with world.engine.begin() as connection:
        for number in (1, 2, 3):
            etag = world.s3.head_object(Bucket=world.bucket, Key=f"up/{number:06}.bin")["ETag"]
            connection.execute(sa.update(uploads).where(uploads.c.id == number).values(etag=etag.strip('"')))
    jobs = world.jobs(owns=f'S3Keys("{world.bucket}", uploads.c.s3_key, etag=uploads.c.etag)')
    world.cli("init", jobs, expect=0)
    with before_execute(lambda: world.put("up/000002.bin", body=b"newer")):
        ran = world.cli("run", jobs, "--json")
    assert world.rows() & {1, 2, 3} == world.objects() & {1, 2, 3} == {2}
    assert world.s3.get_object(Bucket=world.bucket, Key="up/000002.bin")["Body"].read() == b"newer"
    assert outcomes(world.shown(ran.run))[2][0] == "changed"
    assert ran.code == 0


def test_row_with_two_objects_of_which_one_is_denied_is_told_as_dangling(world: World) -> None:
    world.seed(thumbs=True)
    jobs = world.jobs(owns=f'S3Keys("{world.bucket}", uploads.c.s3_key, uploads.c.thumb_key)')
    world.cli("init", jobs, expect=0)
    with before_execute(lambda: world.store.deny(world.bucket, ["th/000002.png"])):
        ran = world.cli("run", jobs, "--json", expect=7)
    assert world.rows() & {1, 2, 3} == {2}
    assert outcomes(world.shown(ran.run))[2] == ("failed", "dangling")


def test_every_object_denied_stops_the_run_at_the_first_batch(world: World) -> None:
    jobs = world.ready()
    with before_execute(lambda: world.store.deny(world.bucket)):
        ran = world.cli("run", jobs, expect=7)
    assert world.rows() == world.objects() == set(range(1, 13))
    assert "AccessDenied" in ran.said
    assert "Nothing was deleted." in ran.said

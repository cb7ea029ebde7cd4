"""What the database refuses keeps its row and its object, and takes no other row with it."""

from __future__ import annotations

import pytest

from tests.e2e.world import World, outcomes

TRIGGER = """
CREATE FUNCTION spare() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.id = 2 THEN {action} END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER spare BEFORE DELETE ON uploads FOR EACH ROW EXECUTE FUNCTION spare();
"""

CHILD = "CREATE TABLE links (id integer PRIMARY KEY, upload bigint REFERENCES uploads (id){extra})"
INDEX = "CREATE INDEX links_upload ON links (upload)"


def only_the_second_is_left(world: World, jobs: object, code: int) -> tuple[str, str]:
    ran = world.cli("run", jobs, "--json", expect=code)
    assert world.rows() & {1, 2, 3} == {2}, "the others are gone, and the refused row is there"
    assert world.objects() & {1, 2, 3} == {2}, "the refused row's object is there"
    tally = ran.document["outcomes"]["uploads"]
    assert (tally["deleted"], tally["deleted"] + tally["blocked"] + tally["failed"]) == (2, 3)
    return outcomes(world.shown(ran.run))[2]


def test_row_that_a_foreign_key_holds_keeps_its_object(world: World) -> None:
    world.seed()
    world.sql(CHILD.format(extra=""), INDEX, "INSERT INTO links VALUES (1, 2)")
    jobs = world.jobs()
    world.cli("init", jobs, expect=0)
    assert only_the_second_is_left(world, jobs, 0) == ("blocked", "referenced")


def test_row_that_a_deferred_constraint_holds_keeps_its_object(world: World) -> None:
    world.seed()
    world.sql(CHILD.format(extra=" DEFERRABLE INITIALLY DEFERRED"), INDEX, "INSERT INTO links VALUES (1, 2)")
    jobs = world.jobs()
    world.cli("init", jobs, expect=0)
    assert only_the_second_is_left(world, jobs, 0) == ("blocked", "referenced")


@pytest.mark.parametrize(
    ("action", "code"), [("RAISE EXCEPTION 'not this one';", "refused"), ("RETURN NULL;", "kept")]
)
def test_row_that_a_trigger_keeps_keeps_its_object(pg_world: World, action: str, code: str) -> None:
    jobs = pg_world.ready()
    pg_world.sql(TRIGGER.format(action=action))
    assert only_the_second_is_left(pg_world, jobs, 7) == ("failed", code)


def test_row_that_a_trigger_refuses_on_sqlite_keeps_its_object(sqlite_world: World) -> None:
    jobs = sqlite_world.ready()
    sqlite_world.sql(
        "CREATE TRIGGER spare BEFORE DELETE ON uploads WHEN OLD.id = 2 "
        "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    )
    assert only_the_second_is_left(sqlite_world, jobs, 7)[0] == "failed"


def test_trigger_that_writes_elsewhere_stops_the_run_before_any_object_goes(pg_world: World) -> None:
    jobs = pg_world.ready()
    pg_world.sql("CREATE TABLE audit (id bigint)")
    pg_world.sql(
        TRIGGER.format(action="NULL;").replace(
            "RETURN OLD;", "INSERT INTO audit VALUES (OLD.id); RETURN OLD;"
        )
    )
    ran = pg_world.cli("run", jobs, expect=7)
    assert pg_world.rows() == pg_world.objects() == set(range(1, 13))
    assert "audit" in ran.said
    assert pg_world.value("SELECT count(*) FROM audit") == 0

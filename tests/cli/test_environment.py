"""Which environment, and which ledger: the name is asked for, and nothing is bound by guessing."""

from __future__ import annotations

from tests.e2e.world import World


def test_init_wants_a_name_for_the_environment(world: World) -> None:
    world.seed()
    jobs = world.jobs()
    for name in ("", "  "):
        refused = world.cli("init", jobs, SAFEDELETE_ENVIRONMENT=name, expect=2)
        assert "SAFEDELETE_ENVIRONMENT" in refused.said
        assert "--environment" in refused.said
    world.cli("init", jobs, "--environment", "test", SAFEDELETE_ENVIRONMENT="", expect=0)
    world.cli("run", jobs, expect=0)


def test_run_without_a_name_for_the_environment_is_refused(world: World) -> None:
    # A snapshot restored elsewhere has the identity of its original: the name alone tells them apart.
    jobs = world.ready()
    for verb in (["plan", jobs], ["run", jobs], ["run", jobs, "--dry-run"], ["check", jobs]):
        refused = world.cli(*verb, SAFEDELETE_ENVIRONMENT="", expect=8)
        assert "names none" in refused.said
        assert "SAFEDELETE_ENVIRONMENT=test" in refused.said
    assert world.rows() == world.objects() == set(range(1, 13))

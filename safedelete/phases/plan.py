"""Phase 1: count what would go, and say so before anything else happens. Reads only.

It is handed readers, which have no method that could delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

import structlog

from safedelete.core.plan import AgeProfile, Plan, TargetPlan, Unknown
from safedelete.ports import ObjectReader, RowReader

log = structlog.get_logger("safedelete.plan")


def make_plan(
    job: str,
    readers: Sequence[RowReader | ObjectReader],
    *,
    as_of: datetime,
    fingerprint: str,
    portion: int | None,
    since: datetime | None,
    environment: str,
    database: str,
    caller: str,
) -> Plan:
    """Survey every target at one frozen instant. Reads only.

    Args:
        job: The purge's name.
        readers: Its targets, in order.
        as_of: The frozen instant, aware.
        fingerprint: Hash of the definition.
        portion: Most items a target gives this run; None for all.
        since: ``as_of`` of the last successful run; None without one.
        environment: What the ledger is bound to.
        database: Identity of the target database.
        caller: Who plans.

    Returns:
        The plan; counts that could not be made are ``Unknown`` in it, which the guard refuses.
    """
    targets = tuple(reader.survey(as_of, portion=portion, since=since) for reader in readers)
    return Plan(
        job=job,
        as_of=as_of,
        fingerprint=fingerprint,
        targets=targets,
        portion=portion,
        environment=environment,
        database=database,
        caller=caller,
    )


def announce(plan: Plan) -> None:
    """Log the plan, a line a target: what a person needs to judge it, and what an auditor will ask for."""
    for target in plan.targets:
        log.info(
            "plan",
            job=plan.job,
            as_of=plan.as_of.isoformat(),
            digest=plan.digest,
            **facts(target),
        )


def facts(target: TargetPlan) -> dict[str, object]:
    """Return one target's plan as plain values."""
    return {
        "target": target.name,
        "kind": target.kind,
        "items": plain(target.items),
        "eligible": plain(target.eligible),
        "total": plain(target.total),
        "objects": plain(target.objects),
        "bytes": plain(target.bytes),
        "nulls_kept": plain(target.nulls),
        "cutoff": None if target.cutoff is None else target.cutoff.isoformat(),
        "statement": target.statement,
        "parameters": dict(target.parameters),
        "first": target.first,
        "last": target.last,
        "sample": list(target.sample),
        "cascades": [asdict(c) | {"rows": plain(c.rows)} for c in target.cascades],
        "notes": list(target.notes),
    }


def plain(value: int | Unknown | AgeProfile | None) -> object:
    """Return a count as a number, or as the reason there is none."""
    if isinstance(value, Unknown):
        return {"unknown": value.why}
    if isinstance(value, AgeProfile):
        return asdict(value)
    return value

"""What a purge's definition says otherwise than it did when an earlier plan of it was made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from safedelete.core.plan import Plan, TargetPlan, Unknown, length
from safedelete.core.run import EXECUTABLE
from safedelete.declare import Purge, Rows, S3Orphans, S3Prefix
from safedelete.errors import SafeDeleteError, StalePlanError

if TYPE_CHECKING:
    from sqlalchemy import Dialect


AGE: Final = re.compile(r"\bsd_\w+|\d{4}-\d\d-\d\dT[\d:.+Z-]+")
"""The parameter, or the instant, of an age test in a statement: it differs by the retention, or by the day."""

UNSEEN: Final = (
    "predicate, retention and per_run read the same; the owned keys, mode=, size=, may_touch= or another option "
    "differ, which a plan does not hold"
)


def differences(then: Plan, now: Plan) -> list[str]:
    """Say how two plans' definitions differ, a line each, as far as plans hold them.

    Args:
        then: The earlier plan.
        now: The later one, of another fingerprint.
    """
    before, after = {t.name: t for t in then.targets}, {t.name: t for t in now.targets}
    found: list[str] = []
    for name in dict.fromkeys((*before, *after)):
        if name not in before:
            found.append(f"{name} is a new target")
        elif name not in after:
            found.append(f"{name} is no target any more")
        else:
            found += _of_target(before[name], after[name])
    if then.portion != now.portion:
        found.append(f"per_run was {_portion(then.portion)}, is {_portion(now.portion)}")
    return found or [UNSEEN]


def _of_target(then: TargetPlan, now: TargetPlan) -> Iterator[str]:
    name = then.name
    if then.period != now.period:
        yield f"{name}: the retention was {_period(then.period)}, is {_period(now.period)}"
    if then.statement and now.statement and AGE.sub("", then.statement) != AGE.sub("", now.statement):
        yield f"{name}: the predicate was {then.statement}"
        yield f"{name}: the predicate is  {now.statement}"
    was, here = _values(then.parameters), _values(now.parameters)
    if then.kind == "rows":
        for value in dict.fromkeys((*was, *here)):
            if was.get(value) != here.get(value):
                yield f"{name}: :{value} was {was.get(value, 'not there')}, is {here.get(value, 'not there')}"


def _values(parameters: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if AGE.fullmatch(name) is None}


def _period(period: timedelta | None) -> str:
    return "none" if period is None else length(period)


def _portion(portion: int | None) -> str:
    return "none" if portion is None else f"{portion:,}"


def explain(stale: StalePlanError, job: Purge, run: str) -> None:
    """Add to the refusal of a sealed plan what the job file says otherwise; nothing where the job file is not why.

    The error names two hashes, which nobody can read.
    """
    from safedelete import wiring

    try:
        record = wiring.show(job, run)
        sealed = record.plan
        if sealed is None or record.state not in EXECUTABLE:
            return
        now = _declared(job, sealed.as_of)
    except SafeDeleteError:
        # How the plan was refused stays what is told.
        return
    if sealed.fingerprint == now.fingerprint:
        return
    lines = "".join(f"\n  {line}" for line in differences(sealed, now))
    stale.hint = (
        f"The job file does not say what it said when the plan was sealed:{lines}\nPlan again, or execute it with the "
        "job file that it was planned from."
    )


def _declared(job: Purge, as_of: datetime) -> Plan:
    """Return what a purge's definition would say in a plan of that instant. Asks no store."""
    from safedelete.wiring.connect import fingerprint, opened
    from safedelete.wiring.settings import Settings

    with opened(Settings.read(), job) as (database, _):
        dialect = database.engine.dialect
    targets = tuple(_target(target, dialect, as_of) for target in job.targets)
    return Plan(
        job=job.name,
        as_of=as_of,
        fingerprint=fingerprint(job),
        targets=targets,
        portion=job.per_run,
    )


def _target(target: Rows | S3Prefix | S3Orphans, dialect: Dialect, as_of: datetime) -> TargetPlan:
    from safedelete.sql import predicate

    nobody_asked = Unknown("not counted")
    if not isinstance(target, Rows):
        return TargetPlan(
            name=target.name,
            kind="objects",
            items=nobody_asked,
            eligible=nobody_asked,
            total=nobody_asked,
            period=target.older_than,
        )
    statement, values = predicate.rendered(target.predicate, dialect, predicate.parameters(target, as_of))
    return TargetPlan(
        name=target.name,
        kind="rows",
        items=nobody_asked,
        eligible=nobody_asked,
        total=nobody_asked,
        period=min((test.cutoff.age for test in predicate.time_tests(target.predicates)), default=None),
        statement=statement,
        parameters=values,
    )

"""What creeps: runs that take more month by month, and a gap since the last one. Both only warn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from safedelete.core.baseline import Night
from safedelete.core.decision import Finding
from safedelete.core.findings import finding
from safedelete.core.volume import NEVER_BEFORE, median

CREEP: Final = 4.0
"""Times what runs took long ago: in the simulation 0.4 to 1.2 warnings in 1,000 nights."""

LATELY: Final = 14
"""Newest runs that are compared: two weeks of nights, so that each weekday counts twice."""

LONG_AGO: Final = (90, 60)
"""Runs back that they are compared with: what a widening predicate took in between does not blur the start."""

ENOUGH_RUNS: Final = 5
"""Runs with items on either side, or a median says nothing."""

APART: Final = timedelta(days=30)
"""Time between the two groups: the 60 runs between busy and quiet hours of one week are no growth."""

GAP: Final = 7.0
"""Nights since the last successful run before the gap is mentioned: a week's holiday of a scheduler is worth a look."""

GAP_TIMES: Final = 3.0
"""Times the usual gap, where that is longer: a weekly job is late after three weeks."""


def slow_creep(name: str, nights: Sequence[Night]) -> Iterator[Finding]:
    """Warn of a target whose runs take far more than they did two to three months ago.

    Args:
        name: The target's name.
        nights: Its earlier nights, oldest first.
    """
    taught = [n for n in nights if n.weight and not n.partial]
    new = [n for n in taught[-LATELY:] if n.fresh]
    old = [n for n in taught[-LONG_AGO[0] : -LONG_AGO[1]] if n.fresh]
    if len(new) < ENOUGH_RUNS or len(old) < ENOUGH_RUNS:
        return
    if new[0].run.plan.as_of - old[-1].run.plan.as_of < APART:
        return
    now, then = median([float(n.fresh) for n in new]), median([float(n.fresh) for n in old])
    if now > CREEP * then and now - then > NEVER_BEFORE:
        yield finding(
            "SD302",
            f"{name}: the last {len(new)} runs took {now:,.0f} (median), {now / then:.1f} times the "
            f"{then:,.0f} of 60 to 90 runs ago.",
            target=name,
            numbers={"now": now, "then": then},
        )


def long_gap(name: str, nights: Sequence[Night], elapsed: float | None) -> Iterator[Finding]:
    """Warn of a run that comes long after the last one.

    Args:
        name: The target's name.
        nights: Its earlier nights, oldest first.
        elapsed: Nights since the last successful run; None where that is unknown.
    """
    spans = [n.season.elapsed for n in nights if n.season.elapsed is not None]
    if elapsed is not None and spans and elapsed > max(GAP, GAP_TIMES * median(spans)):
        yield finding(
            "SD303",
            f"{name}: {elapsed:.1f} nights since the last successful run; the usual gap is {median(spans):.1f}.",
            target=name,
            numbers={"nights": elapsed},
        )

"""Say a measure in words, and draw the days around a cutoff. Pure text.

The sentence is the same for every verdict, so that it can be read at a glance every morning: tonight, its share, the
nights it covers, what is usual and from how many runs, what was expected or forecast, the limit and the rule that
set it, and the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from math import ceil, floor
from typing import Final

from safedelete.core.baseline import profile
from safedelete.core.decision import Decision, Measure, codes_of
from safedelete.core.plan import AgeProfile, TargetPlan

BURSTY: Final = 10.0
"""A limit this many times what is expected catches little more than wipes, and the sentence says so."""

BURSTY_FROM: Final = 20.0
"""Below this many expected items a wide limit is the small counts' doing, not the job's."""

VERDICTS: Final = {"ok": "go", "warn": "go, with a warning", "stop": "STOP"}

BAR: Final = 40
"""Characters of the longest bar of the picture."""

SPAN: Final = 14
"""Days of the picture to either side of the cutoff that are drawn one by one."""

WEEK: Final = 7
"""Days in each line of what lies further back."""

EMPTY: Final = 2
"""Lines without rows, one after the other, that are still drawn one by one."""


def at_most(limit: float) -> str:
    """Write the most whole items that pass: rounded up, a limit would stand beside the same number that it refuses."""
    return f"{floor(limit):,}"


def at_least(low: float) -> str:
    """Write the fewest whole items that pass."""
    return f"{ceil(low):,}"


def sentence(measure: Measure, *, unit: str | None = None, of: str = "table") -> str:
    """Say one measure in one line.

    Args:
        measure: The measure, as decided.
        unit: What is counted; the measure's own word when left out.
        of: What the share is of.
    """
    word = unit or {"items": "items", "cascade": "rows"}.get(measure.measure, measure.measure)
    if measure.tonight is None:
        return f"tonight an unknown number of {word}; {VERDICTS[measure.verdict]}"
    share = "" if measure.share is None else f" ({measure.share:.1%} of the {of})"
    nights = ""
    if measure.nights is not None and round(measure.nights) > 1:
        nights = f" over {measure.nights:.0f} nights"
    parts = [f"tonight {measure.tonight:,.0f} {word}{share}{nights}"]
    if measure.usual_low is not None and measure.usual_high is not None:
        source = (
            f"from {measure.runs} run{'s' * (measure.runs != 1)}" if measure.runs else "by the time column"
        )
        parts.append(f"usual {measure.usual_low:,.0f}-{measure.usual_high:,.0f} {source}")
    elif measure.rule == "no history":
        parts.append("no earlier run to compare with")
    if measure.forecast is not None:
        parts.append(f"{measure.forecast:,.0f} forecast")
    elif measure.expected is not None:
        parts.append(f"about {measure.expected:,.0f} expected")
    if measure.limit is not None:
        parts.append(f"limit {at_most(measure.limit)} ({measure.rule})")
        expected = measure.expected or 0.0
        if expected >= BURSTY_FROM and measure.limit >= BURSTY * expected:
            parts.append("bursty: this limit catches wipes only")
    else:
        parts.append(f"no limit ({measure.rule})")
    parts.append(VERDICTS[measure.verdict])
    return "; ".join(parts)


def picture(ages: AgeProfile, cutoff: datetime | None = None) -> list[str]:
    """Draw the days around the cutoff, the oldest first: near ones a line each, those long past a line a week.

    Bars are rows a day, so that a week and a day can be compared. Stretches without rows take one line.

    Args:
        ages: The day-by-day picture.
        cutoff: Names the cutoff by date where given.
    """
    counts = dict(ages.days)
    back, ahead = min(SPAN, ages.back), min(SPAN, ages.ahead)
    edges = [*range(-back, -ages.back, -WEEK), -ages.back][::-1]
    spans = [*pairwise(edges), *((d, d + 1) for d in range(-back, ahead))]
    rows = [(first, end, sum(counts.get(d, 0) for d in range(first, end))) for first, end in spans]
    most = max((n / (end - first) for first, end, n in rows), default=0.0)
    later = sum(n for d, n in counts.items() if d >= ahead)
    before = [_span(*row, most) for row in rows if row[0] < 0]
    after = [_span(*row, most) for row in rows if row[0] >= 0]
    return [
        *([f"  older           {ages.older:>12,}"] if ages.older else []),
        *_condensed(before),
        f"  --- cutoff{'' if cutoff is None else f' {cutoff:%Y-%m-%d %H:%M}'} ---",
        *_condensed(after),
        *([f"  later           {later:>12,}"] if later else []),
    ]


def _span(first: int, end: int, rows: int, most: float) -> tuple[int, str]:
    label = f"{first:+d} day{'s' * (abs(first) != 1)}" if end - first == 1 else f"{first:+d} to {end - 1:+d}"
    bar = "#" * round(BAR * rows / (end - first) / most) if most else ""
    return rows, f"  {label:<15} {rows:>12,} {bar}".rstrip()


def _condensed(lines: Sequence[tuple[int, str]]) -> Iterator[str]:
    for empty, group in groupby(lines, key=lambda line: line[0] == 0):
        texts = [text for _, text in group]
        if empty and len(texts) > EMPTY:
            yield f"  ({len(texts)} lines without rows)"
        else:
            yield from texts


def oldest_of(target: TargetPlan) -> str:
    """Say where in the age profile the rows lie."""
    ages = profile(target)
    if ages is None:
        return ""
    old = sorted(((rows, d) for d, rows in ages.days if d < -1), reverse=True)[:3]
    parts = [f"{rows:,} at {-d} days before the cutoff" for rows, d in old if rows]
    if ages.older:
        parts.append(f"{ages.older:,} more than {ages.back} days before")
    return f"; age profile: {', '.join(parts)}" if parts else ""


def refusing(made: Decision) -> str:
    """Return the codes of the findings that refuse, as ``[SD201, SD212]``; empty where none does."""
    codes = codes_of(made.findings)
    return f"[{', '.join(codes)}]" if codes else ""

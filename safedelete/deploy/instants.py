"""Whether a platform would run a job when it was declared to run, instant by instant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from heapq import merge
from itertools import groupby, zip_longest
from typing import Final, Literal, NamedTuple

from safedelete.core.schedule import Schedule

FROM: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Fixed, so that the same schedule is always translated or always refused."""

UNTIL: Final = datetime(2029, 1, 1, tzinfo=UTC)
"""Two years hold every change of a zone's clock twice; the third one holds a 29th of February."""


class Difference(NamedTuple):
    """The first run that is not the same.

    Attributes:
        at: When, aware, UTC.
        how: What the platform does with it.
    """

    at: datetime
    how: Literal["leaves out", "adds"]


def difference(declared: Schedule, platform: Sequence[Schedule]) -> Difference | None:
    """Return the first run that a platform would leave out or add, from 2026 to 2028; None where there is none.

    Args:
        declared: The job's schedule.
        platform: What the platform would go by, with its own rule for changes of the clock; runs together.
    """
    ours = declared.occurrences(FROM, UNTIL)
    theirs = (at for at, _ in groupby(merge(*(one.occurrences(FROM, UNTIL) for one in platform))))
    for mine, its in zip_longest(ours, theirs, fillvalue=UNTIL):
        if mine != its:
            return Difference(min(mine, its), "leaves out" if mine < its else "adds")
    return None

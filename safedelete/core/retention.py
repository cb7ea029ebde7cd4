"""Which recorded runs may be forgotten, so that no later decision comes out otherwise. Pure.

The guard, the takeover and ``status`` each look at the newest so many runs of some kinds. As long as the newest of every
kind stay, they see what they would have seen: what is forgotten is out of their sight already, and every new run pushes
it further.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from safedelete.core.run import RESUMABLE, UNFINISHED, RunState

SIGHT: Final = 400
"""Newest runs of a kind that something may look at; above ``baseline.LOOKBACK``. A test holds it against the callers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """One recorded run, as far as forgetting it is concerned.

    Attributes:
        run: Its id.
        state: Where it stands.
        started_at: When it began, aware UTC.
        deleted: Whether it deleted anything.
        planned: Whether it has a plan.
        untold: Whether it was abandoned and left failures that no run has told of yet.
        resumes: Whether a later run may go on with it: a purge's may, a function begins anew.
    """

    run: str
    state: RunState
    started_at: datetime
    deleted: bool = False
    planned: bool = False
    untold: bool = False
    resumes: bool = True


def forgettable(runs: Sequence[Past], before: datetime) -> Iterator[Past]:
    """Yield the runs of one job that may be forgotten.

    Kept are, however old: runs at work and runs that can be resumed; abandoned ones whose failures nobody was told of;
    the newest ``SIGHT`` of each kind, by state, by whether they have a plan, and by whether they deleted something. Whatever
    looks at the newest of several kinds together sees no further.

    Args:
        runs: Every run of the job, newest first.
        before: The instant before which a run must have begun, exclusive; aware UTC.
    """
    kinds: Counter[tuple[RunState, bool, bool]] = Counter()
    for past in runs:
        kind = (past.state, past.planned, past.deleted)
        kinds[kind] += 1
        owed = past.state in (UNFINISHED | RESUMABLE if past.resumes else UNFINISHED) or past.untold
        if past.started_at < before and kinds[kind] > SIGHT and not owed:
            yield past

"""Wait until what was just deployed is what the schedules run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from safedelete.deploy.aws.resources import Deployment
from safedelete.deploy.drift.compare import compare
from safedelete.deploy.drift.model import Difference, Kind
from safedelete.deploy.drift.read import Reader, read, read_schedules
from safedelete.errors import PreflightError, SafeDeleteError

EVERY: Final = 5.0
"""Seconds between two looks."""

ARRIVING: Final = frozenset(
    {
        Kind.NO_SCHEDULE,
        Kind.REPOINTED,
        Kind.UNPINNED,
        Kind.SCHEDULE,
        Kind.NO_REVISION,
        Kind.REVISION,
        Kind.HAND_REGISTERED,
    }
)
"""Differences that a deploy which has not arrived yet shows."""


class Looked(NamedTuple):
    """What was found.

    Attributes:
        differences: What is not as the repository says.
        unread: What could not be looked at, and why; without it nothing is known to be as the repository says.
    """

    differences: Sequence[Difference]
    unread: Mapping[str, SafeDeleteError]


def differences(
    made: Deployment,
    reader: Reader,
    *,
    wait: float = 0,
    now: Callable[[], float],
    sleep: Callable[[float], None],
) -> Looked:
    """Return what is different, and what could not be looked at. Reads only.

    Args:
        made: What the repository says.
        reader: Asks AWS.
        wait: Seconds to wait for the schedules to run the revisions that the repository renders.
        now: A clock in seconds.
        sleep: Waits.
    """
    end = now() + wait
    while (left := end - now()) > 0:
        # Not all of it each time: roles alone are four requests for every job.
        there = read_schedules(made, reader)
        if any(isinstance(error, PreflightError) for error in there.unread.values()):
            # No waiting gives a right.
            break
        if not there.unread and not _arriving(compare(made, there)):
            found = _looked(made, reader)
            if not _arriving(found.differences):
                return found
        sleep(min(EVERY, left))
    return _looked(made, reader)


def _looked(made: Deployment, reader: Reader) -> Looked:
    there = read(made, reader)
    return Looked(compare(made, there), there.unread)


def _arriving(found: Sequence[Difference]) -> bool:
    return any(difference.kind in ARRIVING for difference in found)

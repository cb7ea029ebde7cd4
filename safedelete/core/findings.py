"""Every finding the guard can make: one table, so that code, message and documentation cannot drift apart.

A code never changes its meaning and is never used again for another. 1xx needs no statistics, 2xx holds tonight
against what is usual or was forecast, 3xx only tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from safedelete.core.decision import Finding, Number


@dataclass(frozen=True, slots=True)
class Kind:
    """What a code stands for.

    Attributes:
        title: A few words.
        severity: ``refuse``, ``warn``, or ``declared`` where ``Guard(too_few=...)`` chooses.
        meaning: One sentence.
        action: What to look at, and what to do.
        acceptable: Whether a person may accept it. A number that nobody knows cannot be accepted.
    """

    title: str
    severity: Literal["refuse", "warn", "declared"]
    meaning: str
    action: str
    acceptable: bool = True


FINDINGS: Final[Mapping[str, Kind]] = {
    "SD100": Kind(
        "Could not be counted",
        "refuse",
        "A number the decision needs is unknown, and unknown is never zero.",
        "Repair what kept the count from being made, then plan again. It cannot be approved.",
        acceptable=False,
    ),
    "SD101": Kind(
        "Above max_items",
        "refuse",
        "More rows or objects than Guard(max_items=...) allows for one target or one cascaded table.",
        "Look at the sample and the age profile. Approve this plan once, or raise the limit in the job file.",
    ),
    "SD102": Kind(
        "Above max_fraction",
        "refuse",
        "A larger share of the table or prefix than Guard(max_fraction=...) allows.",
        "Look at the cutoff and the predicate. Approve this plan once, or raise the limit in the job file.",
    ),
    "SD103": Kind(
        "Above max_bytes",
        "refuse",
        "More bytes than Guard(max_bytes=...) allows.",
        "Look at the largest items. Approve this plan once, or raise the limit in the job file.",
    ),
    "SD104": Kind(
        "Above max_sealed",
        "refuse",
        "More items are eligible than Purge(max_sealed=...) lets a plan seal in the ledger.",
        "Drain the backlog with per_run=N, or raise max_sealed. It cannot be approved: its exact keys are not sealed.",
        acceptable=False,
    ),
    "SD110": Kind(
        "Definition changed",
        "refuse",
        "Predicate, retention, targets or keys differ from those of the last successful run.",
        "Read the plan as if it were the first. If the change is meant, approve the plan: the next run is compared with it.",
    ),
    "SD111": Kind(
        "Cutoff out of step with the clock",
        "refuse",
        "Since the last run, and over all runs since a step was accepted, the cutoff must move by as much as the clock; it did not.",
        "Look for a changed retention, a time zone, or a cutoff that is computed outside the job file.",
    ),
    "SD112": Kind(
        "Clock went backwards",
        "refuse",
        "The plan's instant or its cutoff lies before that of an earlier successful run.",
        "Check the clocks of the host and the database. If the earlier run had the wrong clock, approve this plan: "
        "that run is then left out for good.",
    ),
    "SD113": Kind(
        "Cutoff in the future",
        "refuse",
        "The cutoff lies after the plan's own instant, so items would go before they expire.",
        "Repair the retention or the time zone, then plan again. It cannot be approved.",
        acceptable=False,
    ),
    "SD114": Kind(
        "Too large a share",
        "refuse",
        "The plan takes most of the table, or most of what matches when the age test is left out.",
        "Look for a lost or widened cutoff. If the share is meant, approve; two such runs make it usual.",
    ),
    "SD115": Kind(
        "Not to be trusted",
        "refuse",
        "What rows name cannot be held against what is listed: a referencing table is empty, a column's values all lie outside "
        "the prefix, a value may mean an object and does not spell its key, or a column names objects that are not there.",
        "Check database, bucket and prefix, and what the message names. S3Orphans(referenced_by=...) takes an SQL expression that "
        "makes the key of a URL. It cannot be approved.",
        acceptable=False,
    ),
    "SD116": Kind(
        "Younger than min_age",
        "refuse",
        "The cutoff lies less far behind the plan's instant than Guard(min_age=...) allows, or there is none.",
        "Repair the retention, or lower min_age in the job file. It cannot be approved.",
        acceptable=False,
    ),
    "SD200": Kind(
        "Nothing to compare with",
        "refuse",
        "No earlier run can be compared with, nor a coming day in a time column.",
        "Look at the count, the share and the days, then approve this plan: it becomes the first of the baseline.",
    ),
    "SD201": Kind(
        "Far more items than usual",
        "refuse",
        "More items than the volume rule allows after what earlier runs took.",
        "Look at the cutoff, a changed definition, the clock, the age profile and the last runs. Approve if it is meant.",
    ),
    "SD202": Kind(
        "Far more objects than usual",
        "refuse",
        "More owned objects than the volume rule allows after what earlier runs took, or on a first night than ten for each row.",
        "Look at what each row owns: a new key column, or a join that multiplies rows. Approve if it is meant.",
    ),
    "SD203": Kind(
        "Far more bytes than usual",
        "refuse",
        "More bytes than the volume rule allows after what earlier runs took.",
        "Look at the largest items and at the prefix. Approve if it is meant.",
    ),
    "SD204": Kind(
        "Far more cascaded rows than usual",
        "refuse",
        "More rows of another table than the volume rule allows, or rows of a table that no earlier run that counts has touched.",
        "Look for a new foreign key with ON DELETE CASCADE or SET NULL. Approve if it is meant.",
    ),
    "SD205": Kind(
        "First night above the provisional baseline",
        "refuse",
        "No earlier run can be compared with; the days around the cutoff in the time column say a night is far smaller.",
        "A backlog looks like this, and so does a wrecked cutoff. Look at the days, then approve once; with per_run that drains in portions.",
    ),
    "SD206": Kind(
        "Far too few",
        "declared",
        "Far fewer items than usual or forecast, or none where there always were some.",
        "Look for a predicate that no longer matches, a cutoff in the wrong unit, or a source that stopped.",
    ),
    "SD210": Kind(
        "More than was forecast",
        "refuse",
        "More items than the last runs saw coming for tonight in the time column.",
        "Rows were back-dated, restored or inserted old, or the cutoff moved. Look at the age profile. Approve if meant.",
    ),
    "SD211": Kind(
        "The forecast itself jumped",
        "refuse",
        "Only the last run saw so many items coming; the runs before did not, and it is far above the usual volume.",
        "Look for an update that moved many rows to one day. Approve if it is meant.",
    ),
    "SD212": Kind(
        "Eligible out of time",
        "refuse",
        "Many items are older than the last run's cutoff, yet were not eligible then.",
        "They were back-dated, bulk-updated or restored since. Look at the age profile. Approve if it is meant.",
    ),
    "SD300": Kind(
        "Some items out of time",
        "warn",
        "Some items are older than the last run's cutoff, yet were not eligible then.",
        "Usually late writes. Look at the age profile if the number is new to you.",
    ),
    "SD301": Kind(
        "No look-ahead",
        "warn",
        "The day-by-day picture could not be had, so the volume rule decides alone.",
        "Index the time column; the reason is in the message.",
    ),
    "SD302": Kind(
        "Slow creep",
        "warn",
        "The last 14 runs took more than four times what runs 60 to 90 runs ago took, a month or more before.",
        "Growth looks like this, and so does a predicate that widens a little every day.",
    ),
    "SD303": Kind(
        "Long gap",
        "warn",
        "Many nights have passed since the last successful run, so far more is expected tonight.",
        "Check the schedule and the clock: a clock that jumped ahead looks like this.",
    ),
    "SD304": Kind(
        "Provisional baseline",
        "warn",
        "No earlier run can be compared with; the time column's own days stand in for a baseline.",
        "There is nothing to do: the first successful run that counts ends it.",
    ),
    "SD305": Kind(
        "Some numbers unknown",
        "warn",
        "A number that would have tightened the decision could not be had; the other limits hold.",
        "Repair the count where the message says it is cheap to repair.",
    ),
    "SD306": Kind(
        "A portion of a backlog",
        "warn",
        "per_run takes the oldest items of a whole that is decided as a whole.",
        "There is nothing to do; the message says how many more runs it takes.",
    ),
    "SD307": Kind(
        "Approval does not apply",
        "warn",
        "The approval given is for another sealed plan, has expired, or names what cannot be accepted.",
        "Approve the refused run that is meant, within its expiry.",
    ),
    "SD308": Kind(
        "History left out",
        "warn",
        "Some earlier runs carry numbers or instants that cannot be true, or appear twice, and were left out.",
        "Look at them with `safedelete history FILE`; two ledgers may have been joined.",
    ),
    "SD309": Kind(
        "Nothing under the prefix",
        "warn",
        "No object at all lies under the prefix, not even one that is too young to go.",
        "Check the spelling of bucket and prefix, and the account and endpoint that were asked.",
    ),
}
"""Code → what it stands for."""


def finding(
    code: str,
    message: str,
    *,
    target: str = "",
    numbers: Mapping[str, Number] | None = None,
    severity: Literal["refuse", "warn"] | None = None,
    hint: str = "",
) -> Finding:
    """Make a finding from the table.

    Args:
        code: One of :data:`FINDINGS`.
        message: What, with numbers, and which limit.
        target: The target's or cascaded table's name.
        numbers: The same numbers for machines.
        severity: What the user declared, where the table leaves it to him.
        hint: What to do, where the table's advice is for another cause of the same code.
    """
    kind = FINDINGS[code]
    fixed = kind.severity if kind.severity != "declared" else None
    return Finding(
        code=code,
        severity=fixed or severity or "warn",
        target=target,
        message=message,
        numbers=dict(numbers or {}),
        hint=hint or kind.action,
    )


def never_acceptable(codes: Iterable[str]) -> list[str]:
    """Return those codes that no approval can accept: what could not be counted, nobody can judge."""
    return sorted({code for code in codes if code not in FINDINGS or not FINDINGS[code].acceptable})

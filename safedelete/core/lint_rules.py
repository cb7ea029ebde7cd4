"""What each lint rule stands for, by its stable code; ``core/lint.py`` holds jobs against them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from safedelete.core.findings import Kind

RULES: Final[Mapping[str, Kind]] = {
    "SD401": Kind(
        "Timeout reaches the next run",
        "refuse",
        "A run may still be going when the next one is due, which then is skipped.",
        "Shorten the timeout, or run less often.",
    ),
    "SD402": Kind(
        "Timeout near what runs take",
        "warn",
        "The timeout would cut an ordinary slow run, or leaves little room before the next one.",
        "Raise the timeout above what successful runs need, drain in portions (per_run), or run less often.",
    ),
    "SD403": Kind(
        "Grace too long",
        "refuse",
        "The platform kills the run before its grace is over, or a stopping run meets the next one (then a warning).",
        "Shorten the grace, or raise the platform's stop timeout.",
    ),
    "SD404": Kind(
        "Local time at risk",
        "warn",
        "A change of the clocks skips or repeats the scheduled local time.",
        "Choose a time that no change of the clocks touches, or tz='UTC'.",
    ),
    "SD405": Kind(
        "Missed run not expressible",
        "warn",
        "The alarm cannot look back far enough to know that a run is missing.",
        "Have an outside watcher pinged, or run more often.",
    ),
    "SD406": Kind(
        "No fixed limit",
        "warn",
        "Until there is a history, nothing but the time column bounds what a first run may delete.",
        "Add guard=Guard(max_items=..., max_fraction=...).",
    ),
    "SD407": Kind(
        "Lease shorter than a batch",
        "refuse",
        "A batch can outlive the lease that protects it.",
        "Lengthen the lease, or shorten the batch's time budget.",
    ),
    "SD408": Kind(
        "Ledger does not last",
        "refuse",
        "History, seals and the lock vanish with the task's disk.",
        "Point $SAFEDELETE_LEDGER_URL at a database, or mount a volume that lasts.",
    ),
    "SD409": Kind(
        "Two jobs share a lock",
        "refuse",
        "Two jobs under one lock keep each other from running.",
        "Give each its own name or lock.",
    ),
    "SD410": Kind(
        "Nobody is told",
        "warn",
        "The alarms go to a topic without a subscriber.",
        "Set ecs.emails or ecs.webhooks, or name the topic that your on-call listens to.",
    ),
    "SD411": Kind(
        "Never runs again",
        "refuse",
        "The schedule has no run to come: its years are over.",
        "Correct the years, or take the job out of its file.",
    ),
}

"""The composition root: from a declared job and the environment to something that runs.

The only package that knows every adapter. The same verbs as on the command line are functions here; the command line
only calls them.
"""

import structlog

from safedelete.runner.context import APPROVAL_WINDOW
from safedelete.sql.inflight import followed
from safedelete.wiring.connect import buckets_of, cancel_statements
from safedelete.wiring.lint import Deployment, PlatformName, lint_jobs
from safedelete.wiring.operate import (
    Paused,
    cancel,
    ledgers,
    pause,
    paused,
    prune_ledger,
    status,
    tell_unloadable,
    unpause,
)
from safedelete.wiring.places import reconcile
from safedelete.wiring.settings import Settings
from safedelete.wiring.setup import init, init_sql, know_roles
from safedelete.wiring.task import require_revision
from safedelete.wiring.unfinished import record_unfinished
from safedelete.wiring.verbs import (
    approve,
    check,
    declared_of,
    execute,
    history,
    owner_of,
    plan,
    run,
    show,
    shown,
    story,
)

__all__ = [
    "APPROVAL_WINDOW",
    "Deployment",
    "Paused",
    "PlatformName",
    "Settings",
    "approve",
    "buckets_of",
    "cancel",
    "cancel_statements",
    "check",
    "declared_of",
    "execute",
    "followed",
    "history",
    "init",
    "init_sql",
    "know_roles",
    "ledgers",
    "lint_jobs",
    "owner_of",
    "pause",
    "paused",
    "plan",
    "prune_ledger",
    "reconcile",
    "record_unfinished",
    "require_revision",
    "run",
    "show",
    "shown",
    "status",
    "story",
    "tell_unloadable",
    "unpause",
]

if not structlog.is_configured():
    # Inside a host that does not use structlog, lines go where its other log lines go, and never to standard output.
    structlog.configure(
        processors=[
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )

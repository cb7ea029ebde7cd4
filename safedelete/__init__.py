"""safedelete: purges, sweeps and backups that cannot fail quietly.

The names below are the public interface; everything else may change between versions. They are imported when first
used, so that ``safedelete --help`` answers without loading SQLAlchemy or boto3.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safedelete.core.decision import Approval
    from safedelete.core.limits import Guard
    from safedelete.core.status import Health
    from safedelete.declare import (
        Inventory,
        Job,
        Purge,
        Rows,
        RunContext,
        S3Endpoint,
        S3Keys,
        S3Orphans,
        S3Prefix,
        job,
        older_than,
        past,
    )
    from safedelete.phases.parts import Progress
    from safedelete.ports import RunRecord
    from safedelete.runner.items import Item
    from safedelete.runner.report import Report
    from safedelete.runner.stop import Asked
    from safedelete.wiring import (
        approve,
        cancel,
        check,
        execute,
        history,
        init,
        pause,
        plan,
        reconcile,
        run,
        show,
        status,
        unpause,
    )

_HOME = {
    "Approval": "safedelete.core.decision",
    "Asked": "safedelete.runner.stop",
    "Guard": "safedelete.core.limits",
    "Inventory": "safedelete.declare",
    "Health": "safedelete.core.status",
    "Item": "safedelete.runner.items",
    "Job": "safedelete.declare",
    "Purge": "safedelete.declare",
    "Rows": "safedelete.declare",
    "RunContext": "safedelete.declare",
    "S3Endpoint": "safedelete.declare",
    "S3Keys": "safedelete.declare",
    "S3Orphans": "safedelete.declare",
    "S3Prefix": "safedelete.declare",
    "job": "safedelete.declare",
    "older_than": "safedelete.declare",
    "past": "safedelete.declare",
    "Progress": "safedelete.phases.parts",
    "Report": "safedelete.runner.report",
    "RunRecord": "safedelete.ports",
    "approve": "safedelete.wiring",
    "cancel": "safedelete.wiring",
    "check": "safedelete.wiring",
    "execute": "safedelete.wiring",
    "history": "safedelete.wiring",
    "init": "safedelete.wiring",
    "pause": "safedelete.wiring",
    "plan": "safedelete.wiring",
    "reconcile": "safedelete.wiring",
    "run": "safedelete.wiring",
    "show": "safedelete.wiring",
    "status": "safedelete.wiring",
    "unpause": "safedelete.wiring",
}

__all__ = [
    "Approval",
    "Asked",
    "Guard",
    "Health",
    "Inventory",
    "Item",
    "Job",
    "Progress",
    "Purge",
    "Report",
    "Rows",
    "RunContext",
    "RunRecord",
    "S3Endpoint",
    "S3Keys",
    "S3Orphans",
    "S3Prefix",
    "approve",
    "cancel",
    "check",
    "execute",
    "history",
    "init",
    "job",
    "older_than",
    "past",
    "pause",
    "plan",
    "reconcile",
    "run",
    "show",
    "status",
    "unpause",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

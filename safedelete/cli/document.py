"""Reports as plain JSON documents, with every number the decision rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Literal

from safedelete.cli.look import sentences
from safedelete.core.decision import Approval, Approved, Decision
from safedelete.core.outcome import Tally
from safedelete.core.plan import Plan, Unknown
from safedelete.core.redact import scrubbed
from safedelete.core.status import Health
from safedelete.errors import SafeDeleteError
from safedelete.ports import Notice, RunRecord, StoredBatch
from safedelete.runner.items import Item, items_of
from safedelete.runner.report import Report


def report_document(report: Report) -> dict[str, Any]:
    """Return a report as plain values."""
    return {
        "job": report.job,
        "kind": report.kind,
        "run": report.run,
        "state": None if report.state is None else report.state.value,
        "exit_code": int(report.exit_code),
        "resumed": report.resumed,
        "message": report.message,
        "plan": plan_document(report.plan),
        "decision": decision_document(report.decision),
        "outcomes": {name: tally_document(tally, report.kind) for name, tally in report.tally.items()},
        "failed": [_item(item) for item in report.failed],
        "failed_count": report.failed_count,
        "notes": list(report.notes),
        "inherited": tally_document(report.inherited),
        "sealed_bytes": report.sealed_bytes,
        "permissions": [plain(proof) for proof in report.proofs],
    }


def plan_document(plan: Plan | None) -> dict[str, Any] | None:
    """Return a plan as plain values."""
    document: dict[str, Any] | None = plain(plan)
    return document


def decision_document(decision: Decision | None) -> dict[str, Any] | None:
    """Return a decision as plain values, without repeating the plan."""
    if decision is None:
        return None
    return {
        "approved": isinstance(decision, Approved),
        "measures": [plain(measure) | {"sentence": said} for measure, said in sentences(decision)],
        "findings": [plain(finding) for finding in decision.findings],
        "approval": plain(decision.approval) if isinstance(decision, Approved) else None,
    }


def record_document(record: RunRecord, approval: Approval | None = None) -> dict[str, Any]:
    """Return a recorded run as plain values."""
    return {
        "run": record.run,
        "job": record.job,
        "kind": record.kind,
        "state": record.state.value,
        "exit_code": record.exit_code,
        "started_at": record.started_at.isoformat(),
        "finished_at": None if record.finished_at is None else record.finished_at.isoformat(),
        "owner": record.owner,
        "task": record.task or None,
        "reason": record.reason,
        "sealed_bytes": record.sealed_bytes,
        "plan": plan_document(record.plan),
        "decision": decision_document(record.decision),
        "approval": plain(approval),
        "outcomes": {name: tally_document(tally, record.kind) for name, tally in record.tally.items()},
    }


def pause_document(job: str, notice: Notice | None) -> dict[str, Any]:
    """Return a job's pause as plain values; null where there is none."""
    return {"job": job, "paused": plain(notice)}


def health_document(health: Health, notice: Notice | None) -> dict[str, Any]:
    """Return how a job stands as plain values."""
    document: dict[str, Any] = plain(health)
    return document | {"ok": health.ok, "health": health.word, "paused": plain(notice)}


def item_document(record: RunRecord, stored: StoredBatch) -> Iterator[dict[str, Any]]:
    """Yield every sealed item of a batch with what became of it."""
    yield from map(_item, items_of(record.plan, stored))


def _item(item: Item) -> dict[str, Any]:
    document: dict[str, Any] = plain(item)
    return document


def tally_document(tally: Tally, kind: Literal["purge", "job"] = "purge") -> dict[str, int]:
    """Return outcome sums as plain values; those of a function job are what it processed and what failed."""
    if kind == "job":
        return {"processed": tally.deleted, "failed": tally.failed}
    return asdict(tally)


def error_document(error: SafeDeleteError) -> dict[str, Any]:
    """Return an error with all it knows: codes of a refusal, a lock's holder, remedies of a preflight."""
    return {
        "error": type(error).__name__,
        "message": scrubbed(str(error)),
        "exit_code": int(error.exit_code),
        **plain(vars(error)),
        "hint": scrubbed(error.hint),
    }


def plain(value: Any) -> Any:
    """Return a value that JSON can hold; what is unknown says why instead of being null."""
    if isinstance(value, Unknown):
        return {"unknown": value.why}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return _scalar(value)


def _scalar(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case None | bool() | int() | float() | str():
            return value
    return str(value)

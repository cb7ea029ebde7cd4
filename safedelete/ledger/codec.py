"""Turn plans, decisions and outcomes into the ledger's JSON and back, with every field checked on the way in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from safedelete.core.decision import Acceptance, Approved, Decision, Refused
from safedelete.core.outcome import ItemOutcome, Outcome, Tally
from safedelete.core.plan import Plan
from safedelete.errors import LedgerError
from safedelete.ledger.sane import require_instant, require_plan

T = TypeVar("T")

_PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)
_APPROVED: TypeAdapter[Approved] = TypeAdapter(Approved)
_REFUSED: TypeAdapter[Refused] = TypeAdapter(Refused)
_TALLIES: TypeAdapter[dict[str, Tally]] = TypeAdapter(dict[str, Tally])
_OUTCOMES: TypeAdapter[dict[int, tuple[Outcome, str, str]]] = TypeAdapter(dict[int, tuple[Outcome, str, str]])
_ACCEPTS: TypeAdapter[tuple[Acceptance, ...]] = TypeAdapter(tuple[Acceptance, ...])
_INDEXES: TypeAdapter[tuple[int | tuple[int, int], ...]] = TypeAdapter(tuple[int | tuple[int, int], ...])


def dump_plan(plan: Plan) -> str:
    """Write a plan as JSON."""
    return _PLAN.dump_json(plan).decode()


def load_plan(text: str, where: str) -> Plan:
    """Read a plan back."""
    plan = _load(_PLAN, text, where)
    _require(plan, where)
    return plan


def dump_decision(decision: Decision) -> str:
    """Write a decision as JSON, tagged with what it is."""
    if isinstance(decision, Approved):
        return json.dumps({"approved": True, "value": _APPROVED.dump_python(decision, mode="json")})
    return json.dumps({"approved": False, "value": _REFUSED.dump_python(decision, mode="json")})


def load_decision(text: str, where: str) -> Decision:
    """Read a decision back, for showing it."""
    try:
        document: Any = json.loads(text)
        approved, value = document["approved"], json.dumps(document["value"])
        if approved not in (True, False):
            raise TypeError(f"it is neither approved nor refused, but {approved!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(where, error) from error
    decision: Decision = _load(_APPROVED, value, where) if approved else _load(_REFUSED, value, where)
    _require(decision.plan, where)
    return decision


def load_instant(text: str, where: str) -> datetime:
    """Read an instant back."""
    try:
        instant = datetime.fromisoformat(text)
        require_instant(instant, "the instant")
    except (ValueError, TypeError) as error:
        raise damaged(where, error) from error
    return instant


def dump_tallies(tallies: Mapping[str, Tally]) -> str:
    """Write outcome sums by target."""
    return _TALLIES.dump_json(dict(tallies)).decode()


def load_tallies(text: str | None, where: str) -> dict[str, Tally]:
    """Read outcome sums back."""
    return {} if text is None else _load(_TALLIES, text, where)


def dump_outcomes(outcomes: Mapping[int, ItemOutcome]) -> str:
    """Write the outcomes other than deleted, by index."""
    return json.dumps(
        {str(i): [o.state.value, o.code, o.detail] for i, o in outcomes.items()}, separators=(",", ":")
    )


def load_outcomes(text: str | None, where: str) -> dict[int, ItemOutcome]:
    """Read outcomes back."""
    if text is None:
        return {}
    return {i: ItemOutcome(*fields) for i, fields in _load(_OUTCOMES, text, where).items()}


def dump_indexes(indexes: Sequence[int]) -> str:
    """Write ascending item indexes: each alone, or a run of them as its first and last."""
    ends: list[list[int]] = []
    if indexes and indexes[-1] - indexes[0] == len(indexes) - 1:
        # The rest of a batch, as a rule.
        return json.dumps(
            [[indexes[0], indexes[-1]] if len(indexes) > 1 else indexes[0]], separators=(",", ":")
        )
    for index in indexes:
        if ends and index == ends[-1][1] + 1:
            ends[-1][1] = index
        else:
            ends.append([index, index])
    return json.dumps([a if a == b else [a, b] for a, b in ends], separators=(",", ":"))


def load_indexes(text: str | None, where: str, *, items: int) -> tuple[int, ...]:
    """Read the indexes of a batch of so many items back."""
    ends = () if text is None else _load(_INDEXES, text, where)
    runs = [(end, end) if isinstance(end, int) else end for end in ends]
    edges = [-1, *(edge for run in runs for edge in run), items]
    if not all(a < b or (a == b and i % 2) for i, (a, b) in enumerate(pairwise(edges))):
        raise damaged(where, ValueError(f"what is pending does not ascend among its {items:,} items"))
    return tuple(index for first, last in runs for index in range(first, last + 1))


def dump_accepts(accepts: tuple[Acceptance, ...]) -> str:
    """Write what an approval accepts as JSON."""
    return _ACCEPTS.dump_json(accepts).decode()


def load_accepts(text: str, where: str) -> tuple[Acceptance, ...]:
    """Read back what an approval accepts."""
    return _load(_ACCEPTS, text, where)


def _require(plan: Plan, where: str) -> None:
    try:
        require_plan(plan)
    except ValueError as error:
        raise damaged(where, error) from error


def damaged(where: str, error: Exception) -> LedgerError:
    """Say that a ledger row cannot be read."""
    first = str(error).splitlines()[0]
    return LedgerError(
        f"The ledger's {where} cannot be read: {first}.",
        hint="It was damaged, edited, or written by another version. Cancel the run and plan again; "
        "`safedelete show RUN` lists what is readable.",
    )


def _load(adapter: TypeAdapter[T], text: str, where: str) -> T:
    try:
        return adapter.validate_json(text)
    except (ValidationError, RecursionError) as error:
        raise damaged(where, error) from error

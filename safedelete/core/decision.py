"""What the guard answers: approved or refused, with every number that led there.

Only ``core/guard.py`` makes an ``Approved`` (an architecture test holds that), and ``phases/execute.py`` takes
nothing else: code that would delete on a refused plan does not type-check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from safedelete.core.plan import Plan

Number: TypeAlias = int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken limit, or one thing worth a look.

    Attributes:
        code: ``SDnnn``; its meaning never changes, and each has a page in the docs.
        severity: Whether it refuses the plan or only warns.
        target: The target's (or cascaded table's) name; empty for the plan as a whole.
        message: What, with numbers, and which limit.
        numbers: The same numbers for machines.
        hint: What to look at or do.
    """

    code: str
    severity: Literal["refuse", "warn"]
    message: str
    target: str = ""
    numbers: Mapping[str, Number] = field(default_factory=dict)
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How one measure of one target (rows, objects, bytes, a cascaded table's rows) was held against what is usual.

    Attributes:
        target: The target's or cascaded table's name.
        measure: ``items``, ``objects``, ``bytes`` or ``cascade``.
        tonight: The number decided on.
        share: Of the table or prefix, 0 to 1; None where the total is unknown.
        nights: Nights covered since the last executed, successful run.
        usual_low: 10 % point of what earlier runs took.
        usual_high: 90 % point.
        runs: Runs in the baseline.
        expected: What the rule, or the forecast, expects for tonight.
        forecast: What earlier plans forecast for tonight; None without one.
        limit: The limit that held; None where no rule could set one.
        rule: The name of the rule that set it.
        verdict: ``ok``, ``stop`` or ``warn``.
    """

    target: str
    measure: str
    tonight: float | None
    share: float | None = None
    nights: float | None = None
    usual_low: float | None = None
    usual_high: float | None = None
    runs: int = 0
    expected: float | None = None
    forecast: float | None = None
    limit: float | None = None
    rule: str = ""
    verdict: Literal["ok", "stop", "warn"] = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """One finding of a refused plan that a person accepts, no wider than it was shown.

    Attributes:
        code: The finding's code.
        target: What it was found on; empty for the plan as a whole.
        limit: The declared limit it broke, or the ids of the runs whose clock it calls wrong; None where it names neither.
    """

    code: str
    target: str = ""
    limit: Number = None

    @classmethod
    def of(cls, found: Finding) -> Acceptance:
        """Return the acceptance of exactly this finding."""
        limit = next((found.numbers[name] for name in _LIMITS if name in found.numbers), None)
        return cls(code=found.code, target=found.target, limit=limit)

    def covers(self, found: Finding) -> bool:
        """Whether a finding made now is the accepted one: the same, on the same target, against no tighter a limit."""
        now = Acceptance.of(found)
        if (now.code, now.target) != (self.code, self.target):
            return False
        if isinstance(self.limit, (int, float)) and isinstance(now.limit, (int, float)):
            return now.limit >= self.limit
        if isinstance(self.limit, str) and isinstance(now.limit, str):
            return set(now.limit.split(",")) <= set(self.limit.split(","))
        return now.limit == self.limit


_LIMITS: Final = ("max_items", "max_fraction", "max_bytes", "runs")
"""Numbers of a finding that bound its acceptance; what the guard works out itself is the same as long as nothing ran since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person's one-time acceptance of one refused plan.

    Attributes:
        run: The sealed run it accepts.
        digest: The sealed digest it is bound to.
        accepts: The findings it accepts; any other still refuses.
        reason: Why, in the approver's words.
        who: Login and caller identity.
        at: When, UTC.
        expires_at: Exclusive.
        teaches: 1: the run enters the baseline as an ordinary one; 0: never (``--one-off``); 2: twice (``--usual``).
    """

    run: str
    digest: str
    accepts: tuple[Acceptance, ...]
    reason: str
    who: str
    at: datetime
    expires_at: datetime
    teaches: Literal[0, 1, 2] = 1

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes it accepts, each once."""
        return tuple(dict.fromkeys(accepted.code for accepted in self.accepts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """A plan that may be executed, with its warnings and, where a person accepted it, the approval."""

    plan: Plan
    measures: tuple[Measure, ...] = ()
    findings: tuple[Finding, ...] = ()
    approval: Approval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A plan that may not be executed, and why; nothing was deleted."""

    plan: Plan
    measures: tuple[Measure, ...] = ()
    findings: tuple[Finding, ...] = ()


Decision: TypeAlias = Approved | Refused


def refusing(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings that refuse, in the order given."""
    return tuple(found for found in findings if found.severity == "refuse")


def codes_of(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the codes of the findings that refuse, each once, in the order given."""
    return tuple(dict.fromkeys(found.code for found in refusing(findings)))

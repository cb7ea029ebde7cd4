"""The limits a user declares for a purge, checked when they are declared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from safedelete.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Bound what one run of a purge may delete.

    Each limit applies to each target by itself (the rows of one table, the objects of one prefix) and is inclusive: a
    plan of exactly ``max_items`` passes. Beside them the rolling baseline of earlier successful runs always holds.
    There is no value that means "unlimited": leave a limit out instead.

    Args:
        max_items: Most items, at least 1; also most rows of each other table that the target's cascades delete.
        max_bytes: Most bytes, at least 1; a plan that knows no sizes is then refused.
        max_fraction: Largest share of the table or prefix, in (0, 1].
        min_age: Youngest a cutoff may be: a plan whose cutoff lies less far behind its own instant is refused, whatever the
            retention says; ``past(column)`` has a cutoff of no age, so it cannot be combined with a floor. Left out, only a
            cutoff in the future is refused.
        too_few: What far too few items (or none where there always were some) does: ``"warn"`` or ``"refuse"``.

    Raises:
        ConfigError: A limit is 0 or below, or a fraction above 1.

    Example:
        >>> Guard(max_items=200_000, max_fraction=0.10).max_items
        200000
    """

    max_items: int | None = None
    max_bytes: int | None = None
    max_fraction: float | None = None
    min_age: timedelta | None = None
    too_few: Literal["warn", "refuse"] = "warn"

    def __post_init__(self) -> None:
        for name in ("max_items", "max_bytes"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(
                    f"Guard({name}={value!r}): must be a whole number of at least 1.",
                    hint=f"Leave {name} out if you want no such limit; 0 never means unlimited.",
                )
        share = self.max_fraction
        if share is not None and (
            isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1
        ):
            raise ConfigError(
                f"Guard(max_fraction={share!r}): must be above 0 and at most 1.",
                hint="0.10 is a tenth of the table. Leave it out if you want no such limit.",
            )
        age = self.min_age
        if age is not None and (not isinstance(age, timedelta) or age <= timedelta(0)):
            raise ConfigError(
                f"Guard(min_age={age!r}): must be a positive timedelta.",
                hint="For example min_age=timedelta(days=30). Leave it out if you want no such floor.",
            )
        if self.too_few not in ("warn", "refuse"):
            raise ConfigError(
                f'Guard(too_few={self.too_few!r}): must be "warn" or "refuse".',
                hint="It says what a plan with far too few items does; leave it out to be warned.",
            )

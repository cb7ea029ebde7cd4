"""The smallest data that breaks a promise, found by leaving out one thing after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from safedelete.errors import ConfigError
from safedelete.testing.promises import Broken
from safedelete.testing.scene import Scene

TRIES: Final = 50
"""Examples that finding the smallest data may take."""

Shown: TypeAlias = tuple[str, Broken]
"""When a promise was broken, and which."""


def smallest(
    scene: Scene, moment: str, broken: Broken, first: Callable[[Scene, Shown], Shown | None]
) -> tuple[Scene, str, Broken]:
    """Return a scene that breaks the same promise, and no longer does without any one thing of it, as far as was tried.

    Args:
        scene: What breaks it.
        moment: When.
        broken: Which promise.
        first: Returns how a smaller scene breaks a promise as another did; None where it does not.
    """
    tries = TRIES

    def breaks(smaller: Scene) -> bool:
        nonlocal scene, moment, broken, tries
        tries -= 1
        try:
            found = first(smaller, (moment, broken))
        except ConfigError:
            # Without that row another's foreign key points nowhere.
            return False
        if found is not None:
            scene, (moment, broken) = smaller, found
        return found is not None

    witness = _only(scene, broken)
    if not breaks(replace(witness, denied=frozenset(), changes={})):
        breaks(witness)
    before: Scene | None = None
    while scene is not before and tries > 0:
        before = scene
        for thing in scene.things():
            if tries > 0:
                breaks(scene.without(thing))
    return scene, moment, broken


def _only(scene: Scene, broken: Broken) -> Scene:
    """Return a scene of what shows a broken promise alone: its rows, and all they refer to."""
    wanted = set(broken.rows)
    rows = {row.name: row for row in scene.rows}
    for row in reversed(scene.rows):
        if row.name not in wanted:
            continue
        for key in row.table.foreign_key_constraints:
            pairs = [(e.parent.name, e.column.name) for e in key.elements]
            wanted |= {
                other.name
                for other in rows.values()
                if other.table is key.referred_table
                and all(other.values[its] == row.values[own] for own, its in pairs)
            }
    return replace(
        scene.with_rows(row for row in scene.rows if row.name in wanted),
        objects=tuple(o for o in scene.objects if (o.bucket, o.key) in broken.objects),
        overwritten=scene.overwritten & broken.objects,
    )

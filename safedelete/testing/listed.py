"""Objects around the cutoff of a target that is found by listing, and keys that it lists."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from hypothesis import strategies as st

from safedelete.declare import S3Orphans, S3Prefix
from safedelete.testing.scene import Stored
from safedelete.testing.values import ODD

_CLASSES: Final = ("REDUCED_REDUNDANCY", "INTELLIGENT_TIERING", "DEEP_ARCHIVE", "GLACIER_IR", "ONEZONE_IA")


def listed(draw: st.DrawFn, target: S3Prefix | S3Orphans, now: datetime) -> list[Stored]:
    """Make objects around a listed target's cutoff, one beside its prefix, and one for each condition that it does not meet."""
    second = timedelta(seconds=1)
    cutoff = (now - target.older_than).replace(microsecond=0)
    steps = [-timedelta(days=400), -second, timedelta(0), second, timedelta(days=400)]
    odd = draw(st.permutations(ODD))
    some = Stored(target.bucket, "", cutoff + steps[0])
    beside: dict[str, dict[str, Any]] = {}
    if isinstance(target, S3Prefix):
        least, most, classes = target.min_size, target.max_size, target.storage_classes
        size = least or (1 if most is None else min(1, most))
        some = replace(some, size=size, storage_class=next(iter(classes), "STANDARD"))
        if least:
            beside["too-small"] = {"size": least - 1}
        if most is not None:
            beside["too-large"] = {"size": most + 1}
        if classes:
            other = next(c for c in ("STANDARD", "STANDARD_IA", "GLACIER", *_CLASSES) if c not in classes)
            beside["of-another-class"] = {"storage_class": other}
    found = [
        replace(some, key=key_below(target, f"{number}-{odd[number]}"), modified=cutoff + step)
        for number, step in enumerate(steps)
    ]
    found += [replace(some, key=key_below(target, name), **how) for name, how in beside.items()]
    unlike = getattr(target, "pattern_regex", None)
    if unlike is not None:
        names = ("unlike", "d/unlike", "unlike~", "d/e/f/unlike.~")
        found += [replace(some, key=target.prefix + n) for n in names if not unlike.fullmatch(n)][:1]
    if target.prefix:
        found.append(replace(some, key=f"{target.prefix.rstrip('/')}2/beside"))
    # Where a pattern takes few names, the one that is long due comes first.
    return list({stored.key: stored for stored in reversed(found)}.values())[::-1]


def key_below(target: S3Prefix | S3Orphans | None, name: str) -> str:
    """Return a key that a target lists, made of a name: as much of it as the target's pattern leaves."""
    if target is None:
        return name
    pattern = getattr(target, "pattern", None)
    if pattern is None:
        return target.prefix + name
    plain = "".join(c for c in name if c.isalnum() or c in "-.") or "x"
    # What else there is in a pattern may be the same for all names: each has a folder of its own then.
    named = "*" in pattern.replace("**", "") or pattern.endswith("**")
    parts = [("d" if named else f"d-{plain}") if part == "**" else part for part in pattern.split("/")]
    if pattern.endswith("**"):
        parts[-1] = plain
    text = re.sub(r"\[!?(\]?[^]]*)\]", _of_a_set, "/".join(parts))
    return str(target.prefix + text.replace("*", plain, 1).replace("*", "x").replace("?", "y"))


def _of_a_set(found: re.Match[str]) -> str:
    inside = found.group(1)
    if not found.group(0).startswith("[!"):
        return inside[0]
    return next((c for c in "~y7Q_" if not re.fullmatch(f"[{re.escape(inside)}]", c)), "~")

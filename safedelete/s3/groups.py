"""Which planned keys one policy rule is likely to treat alike."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from safedelete.core.item import ObjectRef
from safedelete.s3.keys import parent, refusal

MOST_GROUPS: Final = 1000
"""Groups probed in one bucket; one DeleteObjects request takes as many keys."""


@dataclass(frozen=True, slots=True)
class Group:
    """Planned keys that one policy rule is likely to treat alike."""

    bucket: str
    folder: str
    extension: str
    stem: str = ""

    @property
    def sibling(self) -> str:
        """Return a key beside the planned ones that nobody has."""
        tail = f".safedelete-probe-{uuid.uuid4().hex}{self.extension}"
        # Beginning as a planned key does keeps it under a rule for leading characters within the folder.
        for name in (f"{self.folder}{self.stem}{tail}", f"{self.folder}{tail}", self.folder + tail[:40]):
            if refusal(name) is None:
                return name
        return tail


def groups_of(bucket: str, refs: Iterable[ObjectRef], prefixes: Iterable[str]) -> tuple[list[Group], int]:
    """Return the groups that planned objects and prefixes fall into, and how many more there are than are probed."""
    found: dict[tuple[str, str], Group] = {}
    for ref in refs:
        folder = parent(ref.key)
        stem, extension = posixpath.splitext(ref.key[len(folder) :])
        extension = extension[:32]
        # Under an extension that is no valid text or holds a control character the folder alone is probed.
        if refusal(folder + extension + "x") is not None or not extension.isprintable():
            extension = ""
        found.setdefault(
            (folder, extension), Group(bucket, folder, extension, stem[:64] if stem.isprintable() else "")
        )
    for prefix in prefixes:
        if not any(folder.startswith(prefix) for folder, _ in found):
            # A prefix that is no folder is completed to a name that begins with it.
            folder = parent(prefix)
            found.setdefault((folder, ""), Group(bucket, folder, "", prefix[len(folder) :]))
    groups = list(found.values())
    return groups[:MOST_GROUPS], max(0, len(groups) - MOST_GROUPS)

"""Write every planned item down, one JSON object a line, before anything is deleted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from safedelete.core.item import ObjectRef, SealedRow
from safedelete.errors import ConfigError

Page = Sequence[SealedRow] | Sequence[ObjectRef]


def write_manifest(path: Path, pages: Iterable[tuple[str, Page]]) -> int:
    """Write a manifest; complete and on disk when this returns. Reads only the stores.

    Args:
        path: Where to; replaced in one step, so that a reader never sees half of it.
        pages: Target names with their items, a page at a time.

    Returns:
        How many items it names.

    Raises:
        ConfigError: The file cannot be written. Nothing was deleted.
    """
    written = 0
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="ascii") as file:
            for target, page in pages:
                file.writelines(json.dumps(line(target, item)) + "\n" for item in page)
                written += len(page)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise ConfigError(
            f"The manifest {path} cannot be written: {error.strerror}.",
            hint="Name a file in a folder that can be written.",
        ) from error
    return written


def line(target: str, item: SealedRow | ObjectRef) -> Mapping[str, object]:
    """Return one item as plain values."""
    if isinstance(item, ObjectRef):
        return {"target": target, **_object(item)}
    key = [part if isinstance(part, (int, str)) else str(part) for part in item.key]
    found: dict[str, object] = {
        "target": target,
        "key": key,
        "objects": [_object(ref) for ref in item.objects],
    }
    if item.prefixes:
        found["prefixes"] = [f"s3://{prefix.bucket}/{prefix.text}" for prefix in item.prefixes]
    return found


def _object(ref: ObjectRef) -> dict[str, object]:
    return {name: value for name, value in ref._asdict().items() if value is not None}

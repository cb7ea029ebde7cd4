"""Writes what was rendered, and holds what is there against it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from safedelete.errors import ConfigError

MARK: Final = "Rendered by safedelete"
"""In every file that is rendered: one without it is somebody else's, and is not overwritten."""


class Difference(NamedTuple):
    """A file that is not as it would be rendered."""

    path: Path
    what: str


def write(files: Mapping[str, str], folder: Path, *, force: bool = False) -> list[Path]:
    """Write files into a folder; those that are as they should be are left alone.

    Each is replaced in one step, and none before all were looked at.

    Args:
        files: Texts by file name.
        folder: Where; made where it is not there.
        force: Overwrite also what was not rendered.

    Returns:
        The files that were written.

    Raises:
        ConfigError: One is somebody else's, or cannot be written. Nothing was written in the first case.
    """
    changed = {folder / name: text for name, text in files.items() if _read(folder / name) != text}
    foreign = [path for path in changed if MARK not in (_read(path) or MARK)]
    if foreign and not force:
        raise ConfigError(
            f"{', '.join(map(str, foreign))}: not written by `safedelete render`; nothing was written.",
            hint="Choose another directory with --out, or say --force to overwrite.",
        )
    for path, text in changed.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            try:
                scratch.write_text(text, encoding="utf-8")
                scratch.replace(path)
            finally:
                scratch.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}.") from error
    return list(changed)


def compare(files: Mapping[str, str], folder: Path) -> list[Difference]:
    """Return how the files in a folder differ from what would be rendered. Reads only.

    A rendered file that would no longer be is a difference, too: its job would go on running.
    """
    found = []
    for name, text in files.items():
        path = folder / name
        there = _read(path)
        if there is None:
            found.append(Difference(path, "is missing"))
        elif there != text:
            lines = difflib.unified_diff(
                there.splitlines(), text.splitlines(), "as it is", "as rendered", lineterm="", n=1
            )
            found.append(Difference(path, "\n".join(lines)))
    suffixes = {_ending(Path(name)) for name in files}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        mine = path.is_file() and _ending(path) in suffixes and path.name not in files
        if mine and MARK in (_read(path) or ""):
            found.append(Difference(path, "was rendered for a job that is no longer declared"))
    return found


def _ending(path: Path) -> str:
    # Of ``job.taskdef.json`` both parts: what one kind renders is not another's.
    return "".join(path.suffixes)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}.") from error

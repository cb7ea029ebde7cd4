"""Writes what was rendered, and holds what is there against it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from safedelete.errors import ConfigError

MARK: Final = "Rendered by safedelete"
"""At the head of every file that is rendered: one without it is somebody else's, and is not overwritten."""

HEAD: Final = 5
"""Lines that the mark stands in; further down it may be somebody's remark."""


class Difference(NamedTuple):
    """A file that is not as it would be rendered.

    Attributes:
        path: Which.
        what: What is different.
        foreign: Whether it was not rendered, so that it is overwritten by force alone.
        left: Whether it would not be rendered any more, so that only deleting it takes the difference away.
    """

    path: Path
    what: str
    foreign: bool = False
    left: bool = False


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
    foreign = [path for path in changed if _foreign(_read(path))]
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
            raise ConfigError(
                f"{path}: cannot be written: {error.strerror}.",
                hint="Check the folder's permissions and the room on its disk, then render again.",
            ) from error
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
            found.append(Difference(path, "\n".join(lines), _foreign(there)))
    what = "is left over: no declared job renders it any more; delete it"
    found += [Difference(path, what, left=True) for path in left_over(files, folder)]
    return found


def left_over(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Return the files in a folder that were rendered, and would not be any more. Reads only."""
    suffixes = {_ending(Path(name)) for name in files}
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        mine = path.is_file() and _ending(path) in suffixes and path.name not in files
        if mine and not _foreign(_read(path)):
            found.append(path)
    return found


def _foreign(text: str | None) -> bool:
    """Whether a file that is there is not ours; an empty one is not."""
    return text is not None and not any(MARK in line for line in text.splitlines()[:HEAD])


def _ending(path: Path) -> str:
    # Of ``job.taskdef.json`` both parts: what one kind renders is not another's.
    return "".join(path.suffixes)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read: {error}.", hint="Check its permissions, or render into an empty folder."
        ) from error

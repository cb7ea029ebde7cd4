"""Where the tests' files lie: in memory where there is room, because every commit of a SQLite file waits for its disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
ROOM = 8 << 30
"""Bytes that must be free; three workers with their servers take about two thirds of it at most."""


def keep_files_in_memory() -> None:
    """Make temporary files lie in memory, for this process and its children; a ``TMPDIR`` that is set already stays.

    What the tests promise outlives a killed process, not a lost machine, so that no test needs the disk.
    """
    if "TMPDIR" not in os.environ and _has_room(SHARED_MEMORY):
        os.environ["TMPDIR"] = str(SHARED_MEMORY)
        # pytest has asked for it by now.
        tempfile.tempdir = None


def _has_room(folder: Path) -> bool:
    # Some tests write a program and run it.
    return (
        os.access(folder, os.W_OK | os.X_OK)
        and not os.statvfs(folder).f_flag & os.ST_NOEXEC
        and shutil.disk_usage(folder).free >= ROOM
        and _available() >= ROOM
    )


def _available() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0

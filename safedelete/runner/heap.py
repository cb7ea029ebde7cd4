"""Keep the garbage collector from looking at the whole process again and again while a run lasts.

A run makes and drops small objects by the million, and every so many of them Python's collector looks at each object that
is alive: of the modules that a purge loads alone there are 150,000, and none of them ever goes. That took a third to a
half of a run's own processor time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

OWN: Final = 10_000
"""Frozen objects from which on somebody else has frozen a heap; Python 3.12 itself begins with some hundreds."""


@contextmanager
def settled_heap() -> Iterator[None]:
    """Leave what is alive already out of collections until the end; what the run makes is collected as ever.

    A process that has frozen its heap by itself, or that runs another purge in a thread, is left as it is.
    """
    if gc.get_freeze_count() > OWN:
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

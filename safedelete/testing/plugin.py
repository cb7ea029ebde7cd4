"""The pytest plugin: the fixture ``purge_lab``. Imports nothing of safedelete before a test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from safedelete.declare import Purge
    from safedelete.testing.lab import Lab


@pytest.fixture
def purge_lab() -> Iterator[Callable[..., Lab]]:
    """Make labs, which end with the test.

    ``lab = purge_lab(uploads, logins)`` makes one for two purges.

    The arguments are those of :class:`safedelete.testing.Lab`.
    """
    with ExitStack() as opened:

        def make(*purges: Purge, **options: Any) -> Lab:
            from safedelete.testing.lab import Lab

            return opened.enter_context(Lab(*purges, **options))

        yield make

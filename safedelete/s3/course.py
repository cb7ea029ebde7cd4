"""Follow a listing from page to page, and tell when it comes back to where it was or has no end.

A store that turns in a circle is listed for ever, and what it names again is planned again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import lt
from typing import Any, Final

from safedelete.errors import StoreError

MOST_EMPTY: Final = 1000
"""Pages without an entry, one after another, after which a listing is taken to have no end."""


class Course:
    """One listing on its way.

    Args:
        what: What is being done, for messages.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._tokens, self._firsts = _Circle(), _Circle()
        self._last: object = None
        self._empty = 0

    def take(self, names: Sequence[str] | Sequence[tuple[str, str]]) -> None:
        """Take in what a page names.

        Raises:
            StoreError: It names something twice, or what an earlier page began with.
        """
        if not names:
            self._empty += 1
            return
        self._empty = 0
        # Whatever the tokens say: a store that makes a new one each time would be listed for ever.
        if names[0] == self._last or self._firsts.closes(names[0]):
            raise self._twice(names[0])
        # Most stores list in order, which is told without a hash of each name.
        if not all(map(lt, names, names[1:])) and len(set(names)) < len(names):
            raise self._twice(next(name for name, times in Counter(names).items() if times > 1))
        self._last = names[-1]

    def _twice(self, name: object) -> StoreError:
        return StoreError(
            f"{self._what} got {repr(name)[:200]} more than once, so it is not known what is there.",
            hint="Nothing of it was used. Run again; if it stays, report it to the store's makers.",
        )

    def onward(self, token: Any, called: str) -> Any:
        """Return where the listing goes on.

        Raises:
            StoreError: It is not said, it is a place where the listing has been, or the listing has no end.
        """
        if not token or self._tokens.closes(token):
            how = f"no {called}" if not token else f"a {called} it had given before"
            raise cut_short(self._what, f"the store says there is more, and gave {how}")
        if self._empty >= MOST_EMPTY:
            raise cut_short(
                self._what, f"the store says there is more, and gave {self._empty:,} empty pages on end"
            )
        return token


class _Circle:
    """Tells when a listing turns in a circle, and keeps one place of it at a time: there may be millions.

    The place kept is replaced by the first, second, fourth, eighth … one, so a circle is noticed within its third turn.
    """

    def __init__(self) -> None:
        self._kept: object = None
        self._given = 0

    def closes(self, place: object) -> bool:
        """Take in the place where the listing goes on; return whether it is the one kept."""
        self._given += 1
        if place == self._kept:
            return True
        if self._given & (self._given - 1) == 0:
            self._kept = place
        return False


def cut_short(what: str, how: str) -> StoreError:
    """Make the error of a listing that did not come to its end."""
    return StoreError(
        f"{what} was cut short: {how}.",
        hint="The listing is incomplete and was not used. Run again; if it stays, report it to the store's makers.",
    )

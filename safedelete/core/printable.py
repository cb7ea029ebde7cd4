"""Make a text safe to print: what a person wrote, or a key that a stranger uploaded, must not command the terminal.

A reason, a key or a database's message may hold a sequence that retitles the window, moves the cursor over what was said,
or turns the direction of the line, so that a reader sees other words than are there.
"""

from __future__ import annotations

from typing import Final

_CONTROLS: Final = (
    *(set(range(0x20)) - {0x0A}),
    *range(0x7F, 0xA0),
    0x061C,
    0x200E,
    0x200F,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)
_SHOWN: Final = {code: f"\\u{code:04x}" for code in _CONTROLS}


def printable(text: str) -> str:
    """Return a text with its control characters spelt out, but for line ends: C0, DEL, C1, and those that turn direction.

    They are spelt as JSON spells them, so that a JSON document stays the same document.
    """
    return text.translate(_SHOWN)

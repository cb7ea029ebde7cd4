"""Tell when keys that rows name and keys that are listed are the same ones in another spelling. Pure.

A row that names ``u/a%200.pdf`` and an object ``u/a 0.pdf`` look like a missing object and an orphan. They are one object,
and the orphan is its only copy.
"""

from __future__ import annotations

import re
from typing import Final
from unicodedata import normalize

MOST: Final = 100_000
"""Keys of either side that are remembered, as numbers. Above it a fair sample of them is."""

_ESCAPES: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def spoken(key: str) -> str:
    """Return one spelling for all of a key: URL decoded, composed, without white space at the ends."""
    if "%" in key:
        key = _ESCAPES.sub(_decoded, key)
    if "+" in key:
        key = key.replace("+", " ")
    return (key if key.isascii() else normalize("NFC", key)).strip()


def spellings(prefix: str) -> frozenset[str]:
    """Return other beginnings of values that mean a key under a prefix: encoded, composed otherwise, after a space."""
    found = {f" {prefix}"}
    for form in (prefix, normalize("NFC", prefix), normalize("NFD", prefix)):
        found.add(form)
        for safe in ("", "/"):
            whole = "".join(c if c in _PLAIN or c in safe else _encoded(c) for c in form)
            found |= {whole, _ESCAPES.sub(lambda match: match[0].lower(), whole)}
    return frozenset(found - {prefix})


class Spellings:
    """What is missing, held against what no row names, whichever of the two comes first; in bounded memory."""

    def __init__(self, most: int = MOST) -> None:
        self._missing = _Sample(most)
        self._unnamed = _Sample(most)
        self.matches = 0
        self.example = ""

    def missing(self, key: str) -> None:
        """Remember a key that a row names and that is not listed."""
        self._hold(key, self._missing, self._unnamed)

    def unnamed(self, key: str) -> None:
        """Remember a key that is listed and that no row names."""
        self._hold(key, self._unnamed, self._missing)

    def _hold(self, key: str, mine: _Sample, others: _Sample) -> None:
        # A number that two spellings share by chance would refuse a sweep, one time in a thousand million.
        number = hash(spoken(key))
        mine.add(number)
        if number in others:
            self.matches += 1
            self.example = self.example or key


class _Sample:
    """At most so many of the numbers it was given: all, or those below a limit that falls as they grow more.

    Both sides keep the same numbers, so that a match is not lost because each side remembers another half.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = 1 << 63
        self._numbers: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def add(self, number: int) -> None:
        if number >= self._limit:
            return
        self._numbers.add(number)
        while len(self._numbers) > self._most:
            # Hashes run from -2**63 to 2**63: each step leaves half of what there is.
            self._limit = (self._limit - (1 << 63)) // 2
            self._numbers = {each for each in self._numbers if each < self._limit}


def _decoded(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("%", "")).decode(errors="replace")


def _encoded(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())

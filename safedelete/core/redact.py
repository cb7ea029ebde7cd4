"""Keep secrets out of log lines: of an argument list, and of what a program prints that was given them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

HIDDEN: Final = "***"

SHORTEST: Final = 4
"""Letters a secret needs to be looked for in other text; a shorter one would blank out half of every line."""

_WORD: Final = (
    r"(?:[a-z0-9]+[-_.])*"
    r"(?:pass(?:word|wd|phrase)?|pwd|secrets?|tokens?|credentials?|auth|sig(?:nature)?|"
    r"(?:api|access|account|private|secret)[-_]?key)"
    r"(?:[-_.](?:key|id|value))?"
)
# Names are bounded: looked for from each letter of a long word, an open end takes time by the square of its length.
_URL: Final = re.compile(r"(?P<head>[a-z][a-z0-9+.-]{0,40}://[^\s/:]*:)(?P<secret>\S*)(?=@)", re.IGNORECASE)
_GIVEN: Final = re.compile(
    rf"(?P<head>(?:^|[\s?&;,])-{{0,2}}(?:[a-z]*(?:pass(?:word|wd)?|pwd)|{_WORD})=)(?P<secret>'[^']*'|[^\s&]+)",
    re.IGNORECASE,
)
_JSON: Final = re.compile(
    rf'(?P<head>"(?:[a-z]*(?:pass(?:word|wd)?|pwd)|{_WORD})"\s*:\s*")(?P<secret>[^"]*)', re.IGNORECASE
)
_SPACED: Final = re.compile(
    rf"(?P<head>(?:^|[\s;,])(?:[a-z]*(?:pass(?:word|wd)?|pwd)|{_WORD}) = )(?P<secret>'[^']*'|[^\s;,]+)",
    re.IGNORECASE,
)
_NAMED: Final = re.compile(rf"[a-z]*(?:pass(?:word|wd)?|pwd)|{_WORD}", re.IGNORECASE)
_NAMES_NEXT: Final = re.compile(rf"--?{_WORD}", re.IGNORECASE)
_HEADER: Final = re.compile(
    r"(?P<head>(?:authorization|x-[a-z-]{0,60}(?:token|key))\s*:\s*)(?P<secret>.+)", re.IGNORECASE
)

_SHORT: Final = (
    # Program, its option, whether the value may be the next word, and what stands before the secret in the value. Whole
    # names (--password) are known without the program; mysql takes the word after a bare -p for the database.
    (r"(?:mysql|mariadb)[a-z_-]*", "-p", False, False),
    ("curl", "(?:-[a-zA-Z#]*[uU]|--(?:proxy-)?user(?=[=\\s\0]))", True, True),
    ("sshpass", "-p", True, False),
    ("redis-cli", "-a", True, False),
    ("mongo[a-z]*", "-p", True, False),
    ("ldap[a-z]+", "-w", True, False),
    ("(?:un)?zip", "-P", True, False),
    ("7z[a-z]*", "-p", False, False),
)


def _short(blank: str, within: str, quote: str) -> Iterator[re.Pattern[str]]:
    """Yield a pattern for each of those options.

    Args:
        blank: What separates two words.
        within: What a value is made of.
        quote: What stands before the value.
    """
    for program, option, apart, user in _SHORT:
        between = f"(?:=|{blank}+(?!-))?" if apart else ""
        name = f"(?:(?!:){within})*:" if user else ""
        yield re.compile(
            rf"(?P<head>(?<![\w.-]){program}{blank}(?:[^\n]{{0,500}}?{blank})?{option}{between}{quote}{name})"
            rf"(?P<secret>(?!{re.escape(HIDDEN)}){within}+)"
        )


_RUNS_ONE: Final = re.compile("|".join(rf"(?<![\w.-]){program}" for program, *_ in _SHORT))
_WORDS: Final = tuple(_short("\0", "[^\0]", ""))
_TEXTS: Final = tuple(
    pattern
    for quote, within in (("", r"[^\s'\"]"), ("'", r"[^'\n]"), ('"', r"[^\"\n]"))
    for pattern in _short(r"\s", within, quote)
)


def redact(arguments: Sequence[str]) -> tuple[list[str], frozenset[str]]:
    """Return an argument list without its secrets, and the secrets.

    Hidden are the password of a URL, the value of ``--password=…``, ``PGPASSWORD=…`` and their like, the argument
    after ``--password``, an authorization header, and what some programs take by one letter (``mysqldump -p…``,
    ``curl -u user:…``). A secret that stands on its own cannot be told from a file name: give it by the environment.
    """
    shown: list[str] = []
    secrets: set[str] = set()
    named = False
    for argument in arguments:
        if named and not argument.startswith("-"):
            secrets.add(argument)
            shown.append(HIDDEN)
            named = False
            continue
        shown.append(_hidden(argument, (_URL, _GIVEN, _HEADER, *_commands(argument)), secrets))
        named = _NAMES_NEXT.fullmatch(argument) is not None
    shown = _hidden("\0".join(shown), _WORDS, secrets).split("\0") if shown else []
    return shown, frozenset(secrets | {_decoded(secret) for secret in secrets})


def without(text: str, secrets: Iterable[str]) -> str:
    """Return a line with every occurrence of these secrets, and every URL's password, hidden."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, HIDDEN)
    return scrubbed(text)


def scrubbed(text: str) -> str:
    """Return a text with whatever looks like a secret hidden: a URL's password, ``password=…`` and its like, a header, a command."""
    return _hidden(text, (_URL, _GIVEN, _JSON, _SPACED, _HEADER, *_commands(text)), set())


def given_by_name(variables: Mapping[str, str]) -> frozenset[str]:
    """Return the values of those variables whose names say that they are secret, and the passwords of URLs in the others."""
    found = {value for name, value in variables.items() if _NAMED.fullmatch(name) is not None}
    return frozenset(found | redact(list(variables.values()))[1])


def _decoded(secret: str) -> str:
    """Return a URL's password as the program reads it."""
    return re.sub(r"(?:%[0-9a-fA-F]{2})+", lambda found: _bytes(found[0]).decode("utf-8", "replace"), secret)


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("%", ""))


def _commands(text: str) -> Iterable[re.Pattern[str]]:
    # Few lines hold a command, and a program may print many.
    return _TEXTS if _RUNS_ONE.search(text) else ()


def _hidden(text: str, patterns: Iterable[re.Pattern[str]], secrets: set[str]) -> str:
    for pattern in patterns:
        before = None
        # A command's options are found one at a time, each from the program's name on.
        while text != before:
            before, text = text, pattern.sub(lambda found: _hide(found, secrets), text)
    return text


def _hide(found: re.Match[str], secrets: set[str]) -> str:
    secret = found["secret"]
    if secret and secret != HIDDEN:
        secrets.add(secret)
    return found["head"] + (HIDDEN if secret else "")

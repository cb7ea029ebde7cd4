"""Say of an argument that a declaration does not take where it belongs: Python would only say that there is none."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from safedelete.core.limits import Guard
from safedelete.declare.orphans import S3Orphans
from safedelete.declare.prefix import S3Prefix
from safedelete.declare.targets import Rows, S3Keys
from safedelete.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")

_WITHIN: Final[tuple[Callable[..., Any], ...]] = (Rows, S3Keys, S3Prefix, S3Orphans, Guard)
"""What is declared within a purge, and takes arguments of its own."""


def known_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse an argument that a declaration does not take, with the name that was meant or what takes it.

    Type checkers and ``inspect.signature`` see the declaration as it is written.
    """
    known = _names(function)
    owner = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                given = [repr(value) for value in args if isinstance(value, str)][:1]
                raise _unknown(f"{owner}({''.join(given)})", name, known)
        return function(*args, **kwargs)

    return checked


def _unknown(where: str, name: str, known: list[str]) -> ConfigError:
    takers = [kind.__name__ for kind in _WITHIN if name in _names(kind)]
    close = get_close_matches(name, known, n=1)
    if takers:
        hint = f"Say it of what takes it: {' or '.join(f'{taker}(..., {name}=...)' for taker in takers)}."
    elif close:
        hint = f"Was {close[0]}= meant?"
    else:
        hint = f"It takes {', '.join(known)}."
    return ConfigError(f"{where}: there is no argument {name}=.", hint=hint)


def _names(function: Callable[..., Any]) -> list[str]:
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if one.kind in by_name and one.name != "self"]

"""Whether a function can be a job, found out when the job is declared and not at three in the morning."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from safedelete.errors import ConfigError


def check_function(function: Callable[..., object], where: str) -> None:
    """Refuse a function that does nothing when it is called with the run, or cannot be called so.

    Raises:
        ConfigError: It is a generator, or takes no argument, or needs more than one.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"{where}: it decorates a generator; calling one runs none of it.",
            hint="Loop inside the function, and yield nothing.",
        )
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise ConfigError(
            f"{where}: its function is called with one argument, the run, and cannot be: {error}.",
            hint="For example def reminders(run): ...",
        ) from error
    except ValueError:
        return  # One written in C may have no signature that could be asked.

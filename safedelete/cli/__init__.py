"""The command line: parse, call, print.

``main`` is the one place where errors are caught: each becomes its message, whether anything was deleted, what to
do next, and its exit code. A bug keeps its traceback, without what looks like a secret: a driver's error, or a job's own,
may repeat an address with its password.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache


@cache
def _command() -> Callable[..., object]:
    """Build the command line from its declaration: once, as a program may call it often."""
    import typer

    from safedelete.cli.app import app

    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    from safedelete.cli.common import chosen, exit_for, print_json
    from safedelete.core.printable import printable
    from safedelete.core.redact import scrubbed
    from safedelete.errors import ExitCode, SafeDeleteError

    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen.answered = False
    try:
        _command()(args=given, prog_name="safedelete")
    except SafeDeleteError as error:
        if os.environ.get("SAFEDELETE_DEBUG"):
            sys.stderr.write(printable(scrubbed(traceback.format_exc())))
        if "--json" in given and not chosen.answered:
            from safedelete.cli.document import error_document

            print_json(error_document(error))
        sys.exit(exit_for(error))
    except Exception:
        sys.stderr.write(printable(scrubbed(traceback.format_exc())))
        sys.exit(int(ExitCode.UNEXPECTED))


def command() -> None:
    """Run the command line in a process of its own, which ends by the deadline of the run that was in it.

    :func:`main` is for programs that call it: their process, and what else is at work in it, are not ours to end.
    """
    from safedelete.cli.common import chosen
    from safedelete.errors import ExitCode

    chosen.alone = True
    try:
        main()
    except SystemExit as end:
        chosen.code = end.code if isinstance(end.code, int) else int(ExitCode.UNEXPECTED)
        raise


__all__ = ["command", "main"]

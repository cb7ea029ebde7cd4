"""Arguments and options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path, typer.Argument(metavar="FILE", help="The job file.", show_default=False)]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Jobs; all of the file's unless named.")
]
Name = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="The job; may be left out when there is one.")
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or a unique beginning of it.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        envvar="SAFEDELETE_FILE",
        help="The job file, where the ledger's URL is declared in it.",
    ),
]

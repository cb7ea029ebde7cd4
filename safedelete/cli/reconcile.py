"""The verb ``reconcile``: what the bucket has and no row names, and what rows name and the bucket has not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safedelete.cli.common import echo, load, print_json, purges, work
from safedelete.errors import ConfigError, ExitCode


def reconcile(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The job file.", show_default=False)],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Jobs; all of the file's unless named.")
    ] = None,
    prefix: Annotated[
        list[str] | None,
        typer.Option(
            "--prefix",
            metavar="PREFIX",
            help="Look there for the objects of S3Keys, in place of the folder their keys share. May be said again.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of tables.")
    ] = False,
) -> None:
    """Report objects without rows and rows without objects. Deletes nothing, takes no lock."""
    wiring = work()
    from safedelete.cli import text
    from safedelete.cli.document import plain

    loaded = load(file)
    every = purges(list(loaded.jobs.values()))
    found: list[Any] = []
    for purge in purges(loaded.pick(names or [])):
        with text.progress() as progress:
            found += wiring.reconcile(purge, every, prefixes=prefix or (), progress=progress)
    if not found:
        raise ConfigError(
            f"{file}: no purge here names objects by rows, so there is nothing to reconcile.",
            hint="Rows(..., owns=S3Keys(...)) and S3Orphans(...) do.",
        )
    if as_json:
        print_json([plain(place) | {"differs": place.differs} for place in found])
    else:
        for place in found:
            echo(_lay_out(place))
        echo("Nothing was deleted.")
    if any(place.unchecked for place in found):
        raise typer.Exit(int(ExitCode.STORE))
    if any(place.differs for place in found):
        raise typer.Exit(int(ExitCode.UNEXPECTED))


def _lay_out(place: Any) -> str:
    from tabulate import tabulate

    rows = [
        ["objects", f"{place.listed:,}, of which a row names {place.named:,}"],
        ["objects without a row", f"{place.without_rows.keys:,} ({place.without_rows.bytes:,} bytes)"],
        ["too young to tell", f"{place.young:,}"],
        ["rows without their object", f"{place.without_objects.keys:,} key(s)"],
        ["columns", ", ".join(place.columns)],
    ]
    if place.values.elsewhere:
        rows.append(["of another bucket", f"{place.values.elsewhere:,} value(s)"])
    head = f"{place.job}: {place.place}"
    if place.unchecked:
        return f"{head}\nCould not be checked: {place.unchecked}.\n".replace("..", ".")
    lines = [head, tabulate(rows, tablefmt="plain")]
    for title, difference in (
        ("Objects without a row", place.without_rows),
        ("Keys without their object", place.without_objects),
    ):
        if difference.keys:
            more = difference.keys - len(difference.sample)
            shown = [f"  {key!r}" for key in difference.sample]
            lines += ["", f"{title}:", *shown, *([f"  and {more:,} more"] if more else [])]
    return "\n".join(lines) + "\n"

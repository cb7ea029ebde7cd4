"""The verbs of whoever operates the jobs: pause, cancel, ask how they stand, keep the ledger small."""

from __future__ import annotations

import re
from datetime import timedelta
from shlex import quote
from typing import Annotated

import typer

from safedelete.cli.arguments import File, FromFile, Json, Names, Run
from safedelete.cli.common import echo, every_job, load, needed, print_json, show_report, work
from safedelete.errors import ConfigError, ExitCode, SafeDeleteError


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    for verb in (pause, unpause, cancel, status):
        app.command()(verb)
    app.command("prune-ledger")(prune_ledger)


def pause(
    file: File,
    names: Names = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; whoever finds the job paused reads it.")] = "",
    as_json: Json = False,
) -> None:
    """Keep jobs from starting until `unpause`: their runs exit 5 and say why. A run at work goes on."""
    wiring = work()
    from safedelete.cli import text
    from safedelete.cli.document import pause_document

    made = [wiring.pause(job, reason=reason) for job in load(file).pick(names or [])]
    if as_json:
        print_json([pause_document(one.job, one.notice) for one in made])
        return
    for one in made:
        echo(("" if one.changed else "Already ") + text.pause(one.job, one.notice))
    which = " ".join(map(quote, [str(file), *(names or [])]))
    echo(f"Nothing was deleted. To let them run again: safedelete unpause {which}")


def unpause(file: File, names: Names = None, as_json: Json = False) -> None:
    """Let paused jobs start again."""
    wiring = work()
    from safedelete.cli import text
    from safedelete.cli.document import pause_document

    made = [wiring.unpause(job) for job in load(file).pick(names or [])]
    if as_json:
        print_json([pause_document(one.job, one.notice) | {"unpaused": one.changed} for one in made])
        return
    for one in made:
        was = text.pause(one.job, one.notice) if one.notice is not None else f"{one.job}: was not paused."
        echo(f"Ended: {was}" if one.changed else was)


def cancel(
    run: Run,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the run.")],
    file: FromFile = None,
    as_json: Json = False,
) -> None:
    """End a run, so that nothing goes on with it; one at work ends at its next batch. Deletes nothing."""
    wiring = work()

    if not reason.strip():
        raise ConfigError(
            "--reason is empty.", hint="Say why this run must not go on; it is kept with the run."
        )
    job = wiring.declared_of(list(load(needed(file)).jobs.values()), run)
    show_report(wiring.cancel(job, run, reason=reason.strip()), job, file, as_json=as_json)


def status(
    file: File,
    names: Names = None,
    notify: Annotated[
        bool, typer.Option("--notify", help="Also send a message for each to those in $SAFEDELETE_NOTIFY.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say whether each job is as its schedule says it should be; exit 1 names those that are not. Reads only."""
    wiring = work()
    from safedelete.cli import text
    from safedelete.cli.document import health_document

    try:
        jobs = load(file).pick(names or [])
    except SafeDeleteError as error:
        if notify:
            wiring.tell_unloadable(file, error)
        raise
    found = wiring.status(jobs, notify=notify)
    pauses = {job.name: wiring.paused(job) for job in jobs}
    if as_json:
        print_json([health_document(one, pauses[one.job]) for one in found])
    else:
        echo(text.status(found, pauses))
    if not all(one.ok for one in found):
        raise typer.Exit(int(ExitCode.UNEXPECTED))


def prune_ledger(
    keep: Annotated[
        str, typer.Option("--keep", metavar="AGE", help="Keep every run younger than this: 400d, 57w.")
    ],
    file: FromFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would go; change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Forget old runs that no later decision needs. Deletes rows of the ledger, nothing else."""
    wiring = work()
    from safedelete.cli import text
    from safedelete.cli.document import plain

    age = _age(keep)
    made = []
    for job in wiring.ledgers(every_job(file)):
        with text.progress() as progress:
            made.append(wiring.prune_ledger(job, keep=age, dry_run=dry_run, progress=progress))
    if as_json:
        print_json([plain(one) | {"dry_run": dry_run} for one in made])
        return
    for one in made:
        echo(text.pruned(one, dry_run=dry_run))


def _age(text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,5})([dw])", text.strip().lower())
    if found is None:
        raise ConfigError(
            f"--keep {text}: a number of days or weeks, as in 400d or 57w.",
            hint="Every run younger than that stays, and older ones that the guard, a takeover or status need.",
        )
    return timedelta(days=int(found[1]) * (7 if found[2] == "w" else 1))

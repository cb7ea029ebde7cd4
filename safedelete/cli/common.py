"""What the verbs share: loading the job file, the late import of what does the work, and how results are shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from safedelete.core.printable import printable
from safedelete.core.redact import scrubbed
from safedelete.errors import ConfigError, SafeDeleteError

if TYPE_CHECKING:
    from types import ModuleType

    from safedelete.declare import Declared, Purge
    from safedelete.loader import JobFile
    from safedelete.runner.report import Report


class Chosen:
    """What was said before the verb, whether its answer has been given, and whose the process is."""

    verbose = False
    answered = False
    alone = False
    """Whether the process is the command line's own, and ends with it."""
    code = 0
    """What it is about to end with."""


chosen = Chosen()


def echo(text: str, *, err: bool = False) -> None:
    """Print a text for a person. Everything that a verb says goes through here: none of it can command the terminal."""
    typer.echo(printable(text), err=err)


def exit_for(error: SafeDeleteError) -> int:
    """Print an error as a person needs it, and return its exit code."""
    echo(scrubbed(f"safedelete: {error}"), err=True)
    echo(error.deleted_sentence, err=True)
    if error.hint:
        echo(scrubbed("Hint: " + error.hint.replace("\n", "\n      ")), err=True)
    return int(error.exit_code)


def raise_first(failed: Sequence[tuple[str, SafeDeleteError]], *, of: int) -> None:
    """Print what came of all jobs that could not be checked but the first, and raise that one's error."""
    for place, (name, error) in enumerate(reversed(failed), 1):
        if of > 1:
            echo(f"{name} could not be checked:", err=True)
        if place == len(failed):
            raise error
        exit_for(error)


def work() -> ModuleType:
    """Import what does the work, with logs on: not before a verb is really called, so that help stays quick."""
    from safedelete import wiring
    from safedelete.cli.logs import configure

    configure(verbose=chosen.verbose)
    return wiring


def load(path: Path) -> JobFile:
    """Load a job file."""
    from safedelete.loader import load
    from safedelete.sql.boot import whole_process

    with whole_process():
        return load(path)


def needed(path: Path | None) -> Path:
    """Return the job file, which this verb cannot do without."""
    if path is None:
        raise ConfigError(
            "Which job file? The purge's definition is needed.",
            hint="Say --file FILE, or set SAFEDELETE_FILE.",
        )
    return path


def said(path: Path | None) -> str | None:
    """Return a job file as one types it; None where none was named."""
    return None if path is None else quote(str(path))


def every_job(path: Path | None) -> list[Declared] | None:
    """Return the jobs in whose ledgers a run may be; None for the environment's ledger."""
    return list(load(path).jobs.values()) if path is not None else None


def purges(jobs: list[Declared]) -> list[Purge]:
    """Return those jobs that are purges."""
    from safedelete.declare import Purge

    return [job for job in jobs if isinstance(job, Purge)]


def show_ledger(created: Sequence[str], jobs: Sequence[Declared], file: Path | None) -> None:
    """Say what `init` has made and bound, and what has to follow."""
    wiring = work()
    echo(f"Created {', '.join(created)}." if created else "Nothing to create.")
    buckets = ", ".join(sorted(wiring.buckets_of(jobs))) or "none"
    whose = "the job file's database(s)" if jobs else "this database"
    echo(f"The ledger is bound to {whose}. Buckets of this file that it is bound to: {buckets}.")
    if created and wiring.know_roles(jobs):
        echo(
            "Only their owner has rights on new tables. Next, as that owner (on MariaDB and MySQL as an administrator), apply what "
            f"`safedelete render grants {said(file)}` writes: the rights of the roles that run, look, approve and operate."
        )


def show_refused(job: Declared, run: str, file: Path, *, as_json: bool) -> None:
    """Show a run that was just refused, with what to look at."""
    wiring = work()
    from safedelete.cli import text
    from safedelete.cli.document import record_document

    try:
        record, past = wiring.story(job, run)
    except SafeDeleteError as error:
        _cannot_show(error)
        return
    if as_json:
        print_json(record_document(record))
    elif record.plan is not None:
        echo(text.refusal(record, past, quote(str(file))))


def show_report(report: Report, job: Declared, file: Path | None, *, as_json: bool) -> None:
    """Show how a run ended, and end with its exit code."""
    wiring = work()
    from safedelete.cli import text

    if as_json:
        _print_with_items(report, job)
    else:
        echo(text.result(report, said(file)))
        if report.run is not None and report.total.deleted != report.total.total:
            try:
                with wiring.shown(job, report.run) as (record, _, batches):
                    for line in text.items(record, batches, said(file), everything=False):
                        echo(line)
            except SafeDeleteError as error:
                _cannot_show(error)
    end([report])


def _print_with_items(report: Report, job: Declared) -> None:
    """Print a run's report with the items that did not go, which alone say what has to be looked at."""
    wiring = work()
    from safedelete.cli.document import item_document, report_document

    document = report_document(report)
    if report.run is None or report.total.deleted == report.total.total:
        print_json(document | {"items": []})
        return

    def kept() -> Iterator[object]:
        try:
            with wiring.shown(job, report.run) as (record, _, batches):
                for stored in batches:
                    for item in item_document(record, stored):
                        if item["outcome"] not in ("deleted", "pending"):
                            yield item
        except SafeDeleteError as error:
            _cannot_show(error)

    print_json_of(document, "items", kept())


def _cannot_show(error: SafeDeleteError) -> None:
    """Say that a run's record cannot be looked at: how the run itself ended stays what its exit code says."""
    echo(f"safedelete: the run's record cannot be shown: {error}", err=True)


def print_json_of(document: Mapping[str, object], name: str, things: Iterable[object]) -> None:
    """Print one JSON document with one more member, a list of things that are never all in memory at once."""
    chosen.answered = True
    head = printable(json.dumps(document, indent=2, default=str, ensure_ascii=False))
    sys.stdout.write(f"{head.removesuffix('}').rstrip()},\n  {json.dumps(name)}: [")
    separator = "\n"
    for thing in things:
        sys.stdout.write(separator + printable(json.dumps(thing, default=str, ensure_ascii=False)))
        separator = ",\n"
    sys.stdout.write("]\n}\n")


def print_json(document: object) -> None:
    """Print one JSON document."""
    chosen.answered = True
    sys.stdout.write(printable(json.dumps(document, indent=2, default=str, ensure_ascii=False)) + "\n")


def end(reports: list[Any]) -> None:
    """End with the worst exit code of these reports, if any is not 0."""
    worst = max((int(report.exit_code) for report in reports), default=0)
    if worst:
        raise typer.Exit(worst)

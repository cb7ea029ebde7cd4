"""Every error safedelete raises on purpose, and the exit code each one ends a command with.

A message answers four questions: what happened (with numbers), which limit or rule it broke, whether
anything was deleted, and what to do next. The third and fourth are kept apart from the text (``deleted``
and ``hint``), so that no caller has to parse a sentence to learn them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's exit status means; an unlisted status is a failure."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    REFUSED = 3
    INCOMPLETE = 4
    SKIPPED = 5
    LOCK_LOST = 6
    STORE = 7
    LEDGER = 8
    PREFLIGHT = 9
    DRIFT = 10


class SafeDeleteError(Exception):
    """Base of every error that safedelete raises on purpose.

    Args:
        message: What happened, with numbers, and which limit or rule it broke.
        hint: What to do next, in one or two sentences.
        deleted: Items (rows and unowned objects) this run had deleted when the error was raised; 0 means
            that nothing was deleted, None that it could not be determined.
    """

    exit_code: ExitCode = ExitCode.UNEXPECTED

    def __init__(self, message: str, *, hint: str = "", deleted: int | None = 0) -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            # For whoever sees the traceback and not the command line: a test, a host, its log.
            self.add_note(f"Hint: {hint}")
        self.deleted = deleted
        self.processed = ""
        """What a function's run says in place of what was deleted, which only its author knows."""

    @property
    def deleted_sentence(self) -> str:
        """Say whether anything was deleted."""
        if self.processed:
            return self.processed
        if self.deleted is None:
            return (
                "What was deleted could not be determined; `safedelete show RUN` lists what the ledger knows."
            )
        if self.deleted == 0:
            return "Nothing was deleted."
        return f"{self.deleted:,} item(s) were deleted before this."


class ConfigError(SafeDeleteError):
    """The job file, an option or the environment is wrong."""

    exit_code = ExitCode.USAGE


class RefusedError(SafeDeleteError):
    """The guard, or a rule that needs no statistics, refused the plan.

    Args:
        message: The decision's sentence.
        findings: The codes (``SDnnn``) of the broken limits, most important first.
        hint: What to do next.
        run: Id of the sealed run that an approval would name, when there is one.
    """

    exit_code = ExitCode.REFUSED

    def __init__(
        self, message: str, *, findings: Sequence[str] = (), hint: str = "", run: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, deleted=0)
        self.findings = tuple(findings)
        self.run = run


class StalePlanError(RefusedError):
    """A sealed plan no longer fits what it was made for: definition, caller, environment, age or use."""


class IncompleteError(SafeDeleteError):
    """The run stopped before everything was settled; the next run resumes it."""

    exit_code = ExitCode.INCOMPLETE


class DeadlineExceededError(IncompleteError):
    """The job's own timeout passed."""


class InterruptedRunError(IncompleteError):
    """A stop was asked for: a signal, a cancelled run, or a host that shuts down."""


class CancelledRunError(InterruptedRunError):
    """A person ended the run while it was working."""


class LockHeldError(SafeDeleteError):
    """Another run holds the job's lock; its kind :class:`PausedError` says that a person paused it.

    Args:
        message: Who holds it, and since when.
        holder: ``host:pid`` of the holder, or who paused the job.
        since: ISO 8601 instant, UTC.
        hint: What to do next.
    """

    exit_code = ExitCode.SKIPPED

    def __init__(self, message: str, *, holder: str = "", since: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint, deleted=0)
        self.holder = holder
        self.since = since


class PausedError(LockHeldError):
    """A person paused the job."""


class LockLostError(SafeDeleteError):
    """The lease ran out or was taken over while the run was working."""

    exit_code = ExitCode.LOCK_LOST


class StoreError(SafeDeleteError):
    """A database or object store did not answer, or answered what cannot be trusted."""

    exit_code = ExitCode.STORE


class ProgramError(StoreError):
    """A program that a job ran ended with a status that means failure.

    Args:
        message: Which program, its status, and the last lines it printed.
        program: Its name.
        status: Its exit status; below 0 the number of the signal that ended it.
        hint: How it was started.
    """

    def __init__(self, message: str, *, program: str, status: int, hint: str = "") -> None:
        super().__init__(message, hint=hint, deleted=None)
        self.program = program
        self.status = status


class BusyError(StoreError):
    """Another transaction was in the way (a lock timeout, a deadlock); the same batch may be tried again."""


class UnreachedError(StoreError):
    """A database's connection was lost or refused (a restart, a failover); the same batch may be tried again on another."""


class NoSpaceError(StoreError):
    """A database's disk or quota is full; trying again helps only once there is room."""


class SchemaChangedError(StoreError):
    """A table or column that the plan names is not there any more, or is of another type."""


class UnfitKeysError(SchemaChangedError):
    """Sealed keys do not fit the table any more: its key has other columns or types than when they were sealed."""


class PartialDeleteError(StoreError):
    """Some sealed items are not deleted, or it is not known whether they are."""


class BlastRadiusError(StoreError):
    """A delete touched a table, or a number of rows, outside the plan; the batch was rolled back."""


class LedgerError(SafeDeleteError):
    """The ledger is missing, of another version, unreadable, or bound to something else."""

    exit_code = ExitCode.LEDGER


class LedgerUnreachedError(LedgerError):
    """The ledger's connection was lost, or another transaction was in its way; the same words may be written again."""


class NoSuchRunError(LedgerError):
    """The ledger holds no run of that id: most often it was mistyped."""

    exit_code = ExitCode.USAGE


class AmbiguousRunError(LedgerError):
    """More than one run's id begins with what was given."""

    exit_code = ExitCode.USAGE


class BindingError(LedgerError):
    """The ledger belongs to another environment, database or set of buckets (a copy of production is not production)."""


class PreflightError(SafeDeleteError):
    """A permission that the purge needs is denied, or could not be proven.

    Args:
        message: Which permission, on what.
        denied: What was denied.
        unknown: What could not be checked; it stops the run as a denial does.
        remedies: The missing GRANT or policy statements, by subject.
    """

    exit_code = ExitCode.PREFLIGHT

    def __init__(
        self,
        message: str,
        *,
        denied: Sequence[str] = (),
        unknown: Sequence[str] = (),
        remedies: Mapping[str, str] | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint, deleted=0)
        self.denied = tuple(denied)
        self.unknown = tuple(unknown)
        self.remedies = dict(remedies or {})


class DriftError(SafeDeleteError):
    """What is deployed differs from what the repository says."""

    exit_code = ExitCode.DRIFT

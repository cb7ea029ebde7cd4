"""Tells the sinks of a run: when it starts, and how it ended, whatever ended it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from shlex import quote

import structlog

from safedelete.core.event import RunEvent
from safedelete.declare import Declared, Purge
from safedelete.errors import ConfigError, ExitCode
from safedelete.metrics.fanout import SECONDS, send, send_all
from safedelete.metrics.notify import Note
from safedelete.metrics.parse import notes, sinks, tolerant
from safedelete.metrics.prometheus import TextfileSink
from safedelete.metrics.tail import tail
from safedelete.ports import Clock, LedgerReader, Proof, RunRecord, Verdict
from safedelete.ports.sink import Sink
from safedelete.runner.report import Report
from safedelete.runner.telling import code_of_end, crashed, ended, why
from safedelete.wiring.settings import Settings

log = structlog.get_logger("safedelete.metrics")


class Telling:
    """Tells of one run. Implements ``ports.Teller``.

    Args:
        job: The job.
        settings: What the environment says.
        clock: The clocks.
        to: The sinks; None for those that the environment names.

    Raises:
        ConfigError: The environment names one wrongly.
    """

    def __init__(
        self, job: Declared, settings: Settings, clock: Clock, to: Sequence[Sink] | None = None
    ) -> None:
        self._to = [*sinks(settings.metrics, tail), *notes(settings.notify)] if to is None else to
        self._clock = clock
        self._start = RunEvent(
            job=job.name,
            kind="purge" if isinstance(job, Purge) else "job",
            environment=settings.environment,
            started_at=clock.now(),
        )
        # Telling comes out of the grace, too, and must leave most of it to the run.
        self._seconds = min(SECONDS, job.grace.total_seconds() / 3)
        self._file = quote(settings.file) if settings.file else "FILE"
        self._record: RunRecord | None = None

    def started(self, run: str) -> None:
        """Tell that the run works under this id now, once."""
        if self._start.run != run:
            self._start = replace(self._start, run=run)
            send(self._sinks(), self._start, self._clock, seconds=self._seconds)

    def crashed(self, records: Sequence[RunRecord]) -> None:
        """Tell of earlier runs whose processes died."""
        now = self._clock.now()
        events = [crashed(record, self._start.environment, now) for record in records]
        if events:
            send_all(self._sinks(), events, self._clock, seconds=self._seconds)

    def cut_off(self, why: str) -> None:
        """Tell that this run's process is about to be ended by force."""
        event = ended(self._start, ExitCode.INCOMPLETE, self._now(), why, None, file=self._file)
        send(self._sinks(), event, self._clock, seconds=self._seconds)

    @contextmanager
    def remembering(self, ledger: LedgerReader) -> Iterator[None]:
        """Look at the run's record on the way out, while the ledger can still be read."""
        try:
            yield
        finally:
            run = self._start.run
            if run is not None:
                # A ledger that hangs, as one does whose lock was lost for it, must not hold up the telling.
                look = threading.Thread(target=self._look, args=(ledger, run), name="telling", daemon=True)
                look.start()
                look.join(self._seconds)

    def _look(self, ledger: LedgerReader, run: str) -> None:
        # How the run ended is being told already; without the record the numbers are left out.
        with suppress(Exception):
            self._record = ledger.record(run)

    def ended(self, report: Report | None, error: BaseException | None) -> None:
        """Tell how it ended."""
        code = code_of_end(error, ExitCode.DONE if report is None else report.exit_code)
        message = why(error, "" if report is None else report.message)
        send(
            self._sinks(),
            ended(self._start, code, self._now(), message, self._record, file=self._file),
            self._clock,
            seconds=self._seconds,
        )

    def _sinks(self) -> Sequence[Sink]:
        return self._to

    def _now(self) -> datetime:
        # A clock that was set back meanwhile must not give a run a negative length.
        return max(self._clock.now(), self._start.started_at)


class Passing(Telling):
    """Tells what a verb that is no run comes across: a crash. A sink that is named wrongly does not keep it from its work.

    Args:
        job: The job.
        settings: What the environment says.
        clock: The clocks.
    """

    def __init__(self, job: Declared, settings: Settings, clock: Clock) -> None:
        super().__init__(job, settings, clock, ())
        self._settings = settings

    def _sinks(self) -> Sequence[Sink]:
        # Not before there is something to tell: most such verbs tell nothing.
        found, wrong = tolerant(self._settings.metrics, self._settings.notify, tail)
        for error in wrong:
            log.warning("a metrics sink is named wrongly", error=str(error), hint=error.hint)
        return found


def proofs_of(settings: Settings) -> list[Proof]:
    """Say which of the environment's sinks cannot be sent to, as far as that can be known. Reads only; sends nothing."""
    found, wrong = tolerant(settings.metrics, settings.notify)
    made = [Proof("metrics and notes", Verdict.DENIED, str(error), error.hint) for error in wrong]
    for sink in found:
        why = sink.missing() if isinstance(sink, TextfileSink) else ""
        if why:
            remedy = (
                "Make it, for the user that the jobs run as, and give it to node_exporter as "
                "--collector.textfile.directory."
            )
            made.append(Proof(f"write {sink.name}", Verdict.DENIED, why, remedy))
    return made


def callers(settings: Settings) -> Sequence[Note]:
    """Return whom ``$SAFEDELETE_NOTIFY`` names.

    Raises:
        ConfigError: It names nobody, or somebody wrongly.
    """
    found = notes(settings.notify)
    if not found:
        raise ConfigError(
            "$SAFEDELETE_NOTIFY names nobody who could be told.",
            hint="Set it to an http or https address, the ARN of an SNS topic, or an Apprise address.",
        )
    return found


@contextmanager
def told(telling: Telling) -> Iterator[list[Report]]:
    """Tell how what happens inside ends; the report is put into the list."""
    reports: list[Report] = []
    try:
        yield reports
    except BaseException as error:
        telling.ended(None, error)
        raise
    telling.ended(reports[0] if reports else None, None)

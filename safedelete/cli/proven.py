"""What was proven, and by a dry run what was not: a list of permissions, and a word on how far they reach."""

from __future__ import annotations

from shlex import quote
from textwrap import wrap
from typing import Final

from safedelete.core.decision import Approved
from safedelete.ports import Proof, Verdict
from safedelete.runner.report import Report

WIDTH: Final = 80

MARKS: Final = {
    Verdict.ALLOWED: "ok",
    Verdict.DENIED: "DENIED",
    Verdict.UNKNOWN: "UNKNOWN",
    Verdict.ADVICE: "advice",
}

INDENT: Final = " " * 11


def proofs(report: Report) -> str:
    """List what was proven, each with the store's answer, and the statements that are missing.

    No table: one long answer would make every line of it as long. A statement is one line whatever its length, so that it
    can be copied.
    """
    lines = [f"{report.job}: permissions"]
    for proof in report.proofs:
        lines += _proof(proof)
    missing = [proof.remedy for proof in report.proofs if proof.stops and proof.remedy]
    return "\n".join(lines + (["Missing:", *(f"  {m}" for m in dict.fromkeys(missing))] if missing else []))


def _proof(proof: Proof) -> list[str]:
    mark = f"  {MARKS[proof.verdict]:<9}"
    whole = f"{proof.subject}: {proof.detail}" if proof.detail else proof.subject
    if len(mark + whole) <= WIDTH and "\n" not in whole:
        return [mark + whole]
    return [*_wrapped(proof.subject, mark), *_wrapped(proof.detail, INDENT)]


def _wrapped(text: str, first: str) -> list[str]:
    """Break lines between words alone: what is longer than a line is an address, and is copied."""
    return wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def rehearsed(report: Report, file: str | None) -> str:
    """Say what a dry run has shown, and what it cannot show.

    Args:
        report: Its report.
        file: The job file, quoted for a shell; None where none was named.
    """
    if report.kind == "job":
        shown = "that the function can be called, gets its lock, and comes to its end when it is told to change nothing."
        hidden = (
            "what it does without dry_run (a program that it would start was logged, not started), and that its run can be "
            "recorded. To prove that:"
        )
    else:
        passes = isinstance(report.decision, Approved)
        shown = "what a run would find now" + (
            ", that the guard lets it pass, that each permission above is there, and that the ledger can be written."
            if passes
            else ", and that the guard refuses it: a run would end here. Permissions are as listed above."
        )
        hidden = (
            "that every item goes. Permissions were asked for on samples (objects of the first page of each target), by "
            "statements and requests that can delete nothing; a policy on another folder, a trigger, or a row that "
            "somebody holds shows only when items are deleted."
        )
    lines = ["This was a dry run: nothing was deleted, sealed or recorded."]
    lines += wrap(f"Shown: {shown}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    lines += wrap(f"Not shown: {hidden}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    if report.kind == "job":
        lines.append(f"    safedelete check {file or 'FILE'} {quote(report.job)}")
    return "\n".join(lines)

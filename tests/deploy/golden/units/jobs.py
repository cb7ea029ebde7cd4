"""Jobs whose units and alert rules are kept beside this folder, as they are rendered."""

from datetime import timedelta

from safedelete import Guard, Purge, RunContext, S3Prefix, job


@job("reminders", schedule="*/15 * * * *", timeout=timedelta(minutes=5))
def reminders(run: RunContext) -> None:
    """A quarter of an hour lies between two runs."""


@job("backup", schedule="cron(30 1 ? * 2#1 *)", timeout=timedelta(hours=2), tz="Europe/Berlin")
def backup(run: RunContext) -> None:
    """A month lies between two runs, and a change of the clock may."""


scratch = Purge(
    "scratch-objects",
    S3Prefix("acme-scratch", "tmp/", older_than=timedelta(days=7)),
    schedule="0 4 13 * 5",
    timeout=timedelta(hours=1),
    guard=Guard(max_items=200_000, max_fraction=0.10),
    tz="America/New_York",
)

"""Calls a person: a refusal, a failure or a run that did not end, with what it said and what to do; or one that never was."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from safedelete.core.event import Ending, RunEvent
from safedelete.core.status import Health
from safedelete.metrics.addresses import post, web_address, without_password
from safedelete.metrics.lines import said

CALLED_FOR: Final = frozenset({Ending.REFUSED, Ending.FAILED, Ending.INTERRUPTED, Ending.CRASHED})
"""A skipped run is told by the one that holds the lock, or by ``status``."""


def headline(event: RunEvent) -> str:
    """Return one line about an event."""
    how = "" if event.ending is None else event.ending.value
    return f"safedelete: {event.job}{_of(event.environment)} {how}".rstrip()


def text(event: RunEvent) -> str:
    """Return what a person needs, in a few lines."""
    lines = [headline(event)]
    if event.message:
        lines.append(event.message)
    if event.run is not None:
        lines.append(f"Run {event.run}, started {event.started_at:%Y-%m-%d %H:%M} UTC.")
    if event.codes:
        lines.append("Findings: " + ", ".join(event.codes))
    if event.approve:
        lines.append("If this is right: " + event.approve)
    return "\n".join(lines)


class Message(NamedTuple):
    """What a person is told.

    Attributes:
        job: The job that it is about.
        headline: One line.
        text: A few lines, the headline first.
        document: The same for programs.
    """

    job: str
    headline: str
    text: str
    document: Mapping[str, Any]


class Note(Protocol):
    """Somebody who can be called. A ``ports.Sink`` that takes messages, too."""

    @property
    def name(self) -> str:
        """What it is called in the log, without credentials."""

    def send(self, event: RunEvent) -> None:
        """Send an event worth calling for."""

    def call(self, message: Message) -> None:
        """Send a message."""


def message_of(event: RunEvent) -> Message | None:
    """Return what to say of an event; None where nobody is to be called."""
    if event.ending not in CALLED_FOR:
        return None
    return Message(event.job, headline(event), text(event), {**said(event), "approve": event.approve or None})


def message_about(health: Health, environment: str) -> Message:
    """Return what to say of a job that is not as it should be."""
    line = f"safedelete: {health.job}{_of(environment)} {health.word}"
    since = "never" if health.succeeded_at is None else f"{health.succeeded_at:%Y-%m-%d %H:%M} UTC"
    problems = [f"{problem.kind}: {problem.message}." for problem in health.problems]
    return Message(
        health.job,
        line,
        "\n".join([line, *problems, f"Last success: {since}."]),
        {
            "job": health.job,
            "environment": environment or None,
            "health": health.word,
            "problems": [{"kind": p.kind, "message": p.message} for p in health.problems],
        },
    )


def message_unknown(what: str, why: str, environment: str) -> Message:
    """Return what to say where nothing can be known: the job file does not load, or the ledger cannot be read.

    Args:
        what: What cannot be told.
        why: What went wrong.
        environment: As the asking host's own variable names it, for neither file nor ledger has said one; may be empty.
    """
    line = f"safedelete{_of(environment)}: it cannot be told {what}"
    document = {"environment": environment or None, "health": None, "message": why}
    return Message("", line, f"{line}\n{why}", document)


def _of(environment: str) -> str:
    return f" ({environment})" if environment else ""


class WebhookNote:
    """A POST with a JSON body: ``text`` for a person (Slack and its kin show it), the rest for programs.

    Args:
        url: The address.
    """

    def __init__(self, url: str) -> None:
        self._url = web_address(url, "SAFEDELETE_NOTIFY")
        self.name = f"notify:{without_password(url)}"

    def send(self, event: RunEvent) -> None:
        """Post an event worth calling for."""
        if (message := message_of(event)) is not None:
            self.call(message)

    def call(self, message: Message) -> None:
        """Post a message."""
        body = {"text": message.text, **message.document}
        post(self._url, json.dumps(body).encode(), "application/json")


def _sns(region: str) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "sns",
        region_name=region,
        config=Config(
            connect_timeout=3, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 2}
        ),
    )


class SnsNote:
    """A message to an SNS topic. Needs ``sns:Publish`` on it.

    Args:
        topic: The topic's ARN.
        connect: Makes the client for a region, when it is first needed.
    """

    def __init__(self, topic: str, connect: Callable[[str], Any] = _sns) -> None:
        self._topic = topic
        self._connect = connect
        self.name = f"notify:{topic.rpartition(':')[2]}"

    def send(self, event: RunEvent) -> None:
        """Publish an event worth calling for."""
        if (message := message_of(event)) is not None:
            self.call(message)

    def call(self, message: Message) -> None:
        """Publish a message."""
        # A subject is ASCII, of at most 100 letters.
        subject = message.headline.encode("ascii", "replace").decode()[:100]
        self._connect(self._topic.split(":")[3]).publish(
            TopicArn=self._topic, Subject=subject, Message=message.text
        )


class AppriseNote:
    """Any address that Apprise knows (``slack://…``, ``mailto://…``); needs the extra ``apprise``.

    Args:
        url: The address.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = f"notify:{url.split(':', 1)[0]}"

    def send(self, event: RunEvent) -> None:
        """Send an event worth calling for.

        Raises:
            ConnectionError: Apprise could not deliver it.
        """
        if (message := message_of(event)) is not None:
            self.call(message)

    def call(self, message: Message) -> None:
        """Send a message.

        Raises:
            ConnectionError: Apprise could not deliver it.
        """
        from apprise import Apprise

        calling = Apprise()
        if not calling.add(self._url) or not calling.notify(title=message.headline, body=message.text):
            raise ConnectionError("Apprise could not deliver the message")

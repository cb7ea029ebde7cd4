"""Reads ``$SAFEDELETE_METRICS`` and ``$SAFEDELETE_NOTIFY``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from safedelete.core.event import words
from safedelete.errors import ConfigError
from safedelete.metrics.addresses import web_address, without_password
from safedelete.metrics.cloudwatch import CloudWatchSink
from safedelete.metrics.lines import EmfSink, LogSink
from safedelete.metrics.notify import AppriseNote, Note, SnsNote, WebhookNote
from safedelete.metrics.otlp import OtlpSink
from safedelete.metrics.ping import PingSink
from safedelete.metrics.prometheus import PushgatewaySink, TextfileSink
from safedelete.ports.sink import Sink

KNOWN = "log, emf, cloudwatch, textfile:PATH, pushgateway:URL, ping:URL, otlp or otlp:URL"


def sinks(text: str, tail: Callable[[], str] = str) -> list[Sink]:
    """Return the sinks that a value of ``$SAFEDELETE_METRICS`` names, separated by commas or blanks.

    Args:
        text: The value.
        tail: Returns the last log lines, which a ping sends along.

    Raises:
        ConfigError: One is not known, its address or path is wrong, or the package it needs is not installed.
    """
    return [_sink(word, tail) for word in words(text)]


def _sink(word: str, tail: Callable[[], str]) -> Sink:
    kind, _, rest = word.partition(":")
    plain: dict[str, Callable[[], Sink]] = {"log": LogSink, "emf": EmfSink, "cloudwatch": CloudWatchSink}
    if not rest and kind in plain:
        return plain[kind]()
    match kind:
        case "textfile" if rest:
            _needs("prometheus_client", "prometheus", word)
            return TextfileSink(Path(rest))
        case "pushgateway" if rest:
            _needs("prometheus_client", "prometheus", word)
            return PushgatewaySink(web_address(rest, "SAFEDELETE_METRICS"))
        case "ping" if rest:
            return PingSink(rest, tail)
        case "otlp":
            _needs("opentelemetry.exporter.otlp.proto.http", "otel", word)
            return OtlpSink(rest)
    raise ConfigError(
        f"$SAFEDELETE_METRICS: {without_password(word) if rest else word!r} is not a known sink.",
        hint=f"Known are {KNOWN}; several are separated by commas.",
    )


def notes(text: str) -> list[Note]:
    """Return whom a value of ``$SAFEDELETE_NOTIFY`` names, separated by blanks.

    Raises:
        ConfigError: An address is wrong, or needs a package that is not installed.
    """
    return [_note(word) for word in text.split()]


def tolerant(
    metrics: str, notify: str, tail: Callable[[], str] = str
) -> tuple[list[Sink], list[ConfigError]]:
    """Return the sinks that both variables name, as far as they are right, and what is wrong with the others.

    Args:
        metrics: The value of ``$SAFEDELETE_METRICS``.
        notify: The value of ``$SAFEDELETE_NOTIFY``.
        tail: Returns the last log lines, which a ping sends along.
    """
    found: list[Sink] = []
    wrong: list[ConfigError] = []
    named: list[Callable[[], Sink]] = [
        *(partial(_sink, word, tail) for word in words(metrics)),
        *(partial(_note, word) for word in notify.split()),
    ]
    for make in named:
        try:
            found.append(make())
        except ConfigError as error:
            wrong.append(error)
    return found, wrong


def _note(word: str) -> Note:
    if word.startswith("arn:"):
        if not (word.split(":")[2:3] == ["sns"] and len(word.split(":")) == 6):
            raise ConfigError(
                f"$SAFEDELETE_NOTIFY: {word!r} is not the ARN of an SNS topic.",
                hint="It reads arn:aws:sns:REGION:ACCOUNT:TOPIC.",
            )
        return SnsNote(word)
    if word.startswith(("http://", "https://")):
        return WebhookNote(word)
    if "://" not in word:
        raise ConfigError(
            f"$SAFEDELETE_NOTIFY: {word!r} is not an address.",
            hint="Give an http or https address, the ARN of an SNS topic, or an Apprise address such as slack://….",
        )
    _needs("apprise", "apprise", word)
    return AppriseNote(word)


def _needs(module: str, extra: str, word: str) -> None:
    try:
        there = find_spec(module) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        raise ConfigError(
            f"{word.partition(':')[0]} needs a package that is not installed.",
            hint=f"Install it: pip install 'safedelete-purge[{extra}]'.",
        )

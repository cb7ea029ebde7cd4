"""The watchdog ends a run in time, whatever it meets on the way."""

from __future__ import annotations

import threading
import time

import pytest

from safedelete.cli import signals
from safedelete.errors import ExitCode


def test_a_server_that_does_not_hear_the_cancelling_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A half-open connection swallows the cancel request as it has swallowed the statement."""
    answered, ended = threading.Event(), threading.Event()
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(signals, "cancel_statements", lambda: answered.wait(30))
    monkeypatch.setattr(signals, "record_unfinished", lambda why, *, within: None)
    monkeypatch.setattr(signals.os, "_exit", end)
    monkeypatch.setattr(signals._Watch, "_end_by_force_after", lambda *_: None)
    with signals.socket_pair() as (ours, _):
        watch = signals._Watch(ours, timeout=0.1, grace=0.4)
        began = time.monotonic()
        watch.start()
        assert ended.wait(10)
        assert time.monotonic() - began < 5
        answered.set()
        watch.end()
    assert codes == [int(ExitCode.INCOMPLETE)]
    assert "the process ends now" in capsys.readouterr().err

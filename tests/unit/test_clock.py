"""The clock that a lease's own deadline is kept on."""

from __future__ import annotations

import time

import pytest

from safedelete.wiring.settings import SystemClock


@pytest.mark.skipif(
    not hasattr(time, "CLOCK_BOOTTIME"), reason="this platform has no clock that counts suspension"
)
def test_it_counts_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    # A machine that has slept for an hour, as far as a test may say so.
    slept = {time.CLOCK_MONOTONIC: 100.0, time.CLOCK_BOOTTIME: 3700.0}
    monkeypatch.setattr(time, "clock_gettime", slept.__getitem__)
    assert SystemClock().uptime() == 3700.0

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from safedelete.core.event import Ending, RunEvent
from safedelete.core.outcome import Tally
from safedelete.errors import ExitCode
from tests.metrics.listening import Listener, listening

AT = datetime(2026, 6, 1, 3, 15, tzinfo=UTC)
RUN = "01JWNKXH8R4M3C5D6E7F8G9HJK"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as made:
        yield made


@pytest.fixture
def start() -> RunEvent:
    return RunEvent(job="expired-uploads", environment="test", run=RUN, started_at=AT)


@pytest.fixture
def success() -> RunEvent:
    return event(Ending.SUCCEEDED, ExitCode.DONE)


def event(how: Ending, code: ExitCode, **more: object) -> RunEvent:
    values: dict[str, object] = {
        "job": "expired-uploads",
        "environment": "test",
        "run": RUN,
        "started_at": AT,
        "ended_at": AT + timedelta(seconds=90),
        "ending": how,
        "exit_code": code,
        "items": Tally(deleted=1, gone=2, changed=3, blocked=4, failed=5, unknown=6),
        "planned_rows": 21,
        "planned_objects": 42,
        "planned_bytes": 4200,
        "limit": 100.0,
        "message": "3 of 21 are gone.",
        **more,
    }
    return RunEvent(**values)  # type: ignore[arg-type]

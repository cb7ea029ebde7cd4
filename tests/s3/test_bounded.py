"""An answer that never quite ends is given up, and a long one is not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import Outcome
from safedelete.errors import StoreError
from safedelete.s3 import bounded
from safedelete.s3.client import connect
from safedelete.s3.delete import delete_objects
from safedelete.s3.effort import Effort
from safedelete.s3.listing import list_objects
from safedelete.testing.servers import ADMIN, StubS3
from safedelete.testing.servers.faults import dripping
from tests.s3.support import FakeClock

ONE = Effort(attempts=1)


def reach(stub: StubS3, seconds: float) -> Any:
    connection = connect(
        endpoint_url=stub.endpoint,
        access_key=ADMIN.access_key,
        secret_key=ADMIN.secret_key,
        answer_timeout=seconds,
    )
    return connection.deleter


def test_an_answer_that_drips_is_given_up_and_nothing_of_it_believed(stub: StubS3) -> None:
    stub.put("b", "p/a")
    stub.always(dripping(0.05), operation="*")
    client = reach(stub, 0.4)
    began = time.monotonic()
    with pytest.raises(StoreError, match="ReadTimeoutError"):
        list(list_objects(client, "b", "p/"))
    ref = ObjectRef("b", "p/a")
    outcomes = delete_objects(client, "b", [ref], gate=lambda: None, clock=FakeClock(), effort=ONE)
    assert outcomes[ref].state is Outcome.UNKNOWN
    assert time.monotonic() - began < 5, "each answer would take at least ten seconds"


def test_a_long_answer_is_given_time_for_its_length(stub: StubS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SLOWEST", 100)
    stub.put("b", "p/a")
    stub.always(dripping(0.001), operation="*")
    assert [[item.key for item in page] for page in list_objects(reach(stub, 0.1), "b", "p/")] == [["p/a"]]

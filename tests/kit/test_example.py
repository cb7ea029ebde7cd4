"""The example that users copy is run as they would run it, and the documentation names every promise it is held to."""

from __future__ import annotations

import importlib
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from safedelete.testing import PROMISES, assert_purge_is_safe

ROOT = Path(__file__).resolve().parents[2]

# Beside their retention.py, as it says.
sys.path.insert(0, str(ROOT / "examples"))
try:
    copied: Any = importlib.import_module("test_retention")
finally:
    sys.path.pop(0)

test_a_file_on_legal_hold_stays = copied.test_a_file_on_legal_hold_stays
test_it_keeps_every_promise = copied.test_it_keeps_every_promise


@pytest.fixture(autouse=True)
def _one_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the three that a user gets: which instants there are, and in what order, is shown without running them."""
    monkeypatch.setattr(copied, "assert_purge_is_safe", partial(assert_purge_is_safe, examples=1))


def test_every_promise_is_documented_in_the_words_of_the_code() -> None:
    text = (ROOT / "docs" / "reference" / "testing.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", text, flags=re.MULTILINE)
    assert dict(rows) == dict(PROMISES)

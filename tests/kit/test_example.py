"""The example that users copy is run as they would run it, and the documentation names every promise it is held to."""

from __future__ import annotations

import re
from pathlib import Path

from examples.test_retention import (  # noqa: F401  # tests
    test_a_file_on_legal_hold_stays,
    test_it_keeps_every_promise,
)
from safedelete.testing import PROMISES

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "testing.md"


def test_every_promise_is_documented_in_the_words_of_the_code() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", REFERENCE.read_text(), flags=re.MULTILINE)
    assert dict(rows) == dict(PROMISES)

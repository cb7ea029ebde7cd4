"""Keys are judged byte for byte, and values that only look like keys are never guessed at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedelete.s3.keys import Lane, has_dot_segment, lane, parent, refusal


@pytest.mark.parametrize("code", [*range(0x20), 0xFFFE, 0xFFFF])
def test_what_xml_cannot_carry_goes_alone(code: int) -> None:
    assert lane(f"a{chr(code)}b") is Lane.SINGLE
    assert refusal(f"a{chr(code)}b") is None


@pytest.mark.parametrize(
    "key",
    ["a/../b", "./a", "..", "a&<>\"' b", "/a", "a//b", "+%?#", "\x7f", "\x85", "\u2028", "😀", "x" * 1024],
)
def test_everything_else_goes_in_batches(key: str) -> None:
    assert lane(key) is Lane.BATCH
    assert refusal(key) is None


@pytest.mark.parametrize("key", ["", "x" * 1025, "é" * 513, "\ud800", "a\x01/..", "./\n"])
def test_what_no_request_can_carry_safely_is_refused(key: str) -> None:
    assert refusal(key)


@given(st.text())
def test_every_text_has_a_way_or_a_reason(key: str) -> None:
    why = refusal(key)
    if why is None:
        assert 1 <= len(key.encode()) <= 1024
        assert not (lane(key) is Lane.SINGLE and has_dot_segment(key))
        assert key.startswith(parent(key))

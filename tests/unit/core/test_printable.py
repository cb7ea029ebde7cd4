"""What is printed commands neither the terminal nor the direction of a line, and loses nothing by it."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from safedelete.core.printable import printable

DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def test_a_control_character_is_spelt_out() -> None:
    assert printable("a\x1b]0;pwn\x07b\x9b2J\x7f\x00\r\t") == (
        "a\\u001b]0;pwn\\u0007b\\u009b2J\\u007f\\u0000\\u000d\\u0009"
    )
    assert printable("invoice\u202egpj.exe") == "invoice\\u202egpj.exe"


@given(st.text(st.one_of(st.characters(), st.sampled_from(DIRECTIONS))))
def test_no_control_character_is_left_but_line_ends(text: str) -> None:
    shown = printable(text).replace("\n", "")
    assert not [c for c in shown if unicodedata.category(c) == "Cc" or c in DIRECTIONS]


@given(st.text(st.characters(exclude_categories=["Cc", "Cf"])))
def test_every_other_text_is_left_alone(text: str) -> None:
    assert printable(text + "\n") == text + "\n"


@given(st.dictionaries(st.text(), st.text()))
def test_json_stays_the_same_document(document: dict[str, str]) -> None:
    assert json.loads(printable(json.dumps(document, ensure_ascii=False, indent=2))) == document

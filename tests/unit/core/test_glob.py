"""A glob matches what its words say, no deeper, and no key makes it slow."""

from __future__ import annotations

import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedelete.core.glob import compile_glob


@pytest.mark.parametrize(
    ("pattern", "matches", "spares"),
    [
        ("*.log", ["a.log", ".log"], ["x/a.log", "a.logs", "a.LOG", ""]),
        ("*", ["a", ".a", "a\nb"], ["", "a/", "a/b"]),
        ("**", ["", "a", "a/b/", "a\n/b"], []),
        ("**/*.log", ["a.log", "x/a.log", "x/y/.log"], ["a.txt", "x/a.log/y"]),
        ("a/**", ["a/", "a/b", "a/b/c"], ["a", "b/a/c", "ab/c"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb", "a/b/c"]),
        ("**/a/**", ["a/", "x/a/y"], ["a", "x/ba/y"]),
        ("a*b*c", ["abc", "axbyc", "abbcc"], ["ab/c", "acb", "abcd"]),
        ("20??/*", ["2024/a"], ["202/a", "20/4/a", "20244/a"]),
        ("[0-9a-f]*", ["0x", "f"], ["gx", "", "/x"]),
        ("[!a-c]", ["d", "!"], ["a", "/", ""]),
        ("[]x]", ["]", "x"], ["[", ""]),
        ("[a-]", ["a", "-"], ["b"]),
        ("[!]]", ["a"], ["]"]),
        ("[+-0]", [".", "+", "0"], ["/"]),
        ("a.b+(c)", ["a.b+(c)"], ["axb+(c)", "a.bb(c)"]),
        ("a//b/", ["a//b/"], ["a/b/", "a//b"]),
    ],
)
def test_a_pattern_matches_and_spares(pattern: str, matches: list[str], spares: list[str]) -> None:
    compiled = compile_glob(pattern)
    assert [key for key in matches if not compiled.fullmatch(key)] == []
    assert [key for key in spares if compiled.fullmatch(key)] == []


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "empty"),
        ("a[bc", "not closed"),
        ("[a/b]", "not closed"),
        ("[]", "not closed"),
        ("a**", "whole segments"),
        ("x/**y/z", "whole segments"),
        ("[z-a]", "wrong way round"),
    ],
)
def test_a_malformed_pattern_says_where(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        compile_glob(pattern)


def plainly(pattern: list[str], key: list[str]) -> bool:
    """The same, by trying everything."""
    if not pattern:
        return not key
    if pattern[0] == "**":
        if len(pattern) == 1:
            return len(key) > 0
        return any(plainly(pattern[1:], key[n:]) for n in range(len(key)))
    return bool(key) and segment(pattern[0], key[0], whole=True) and plainly(pattern[1:], key[1:])


def segment(pattern: str, text: str, *, whole: bool = False) -> bool:
    if whole and pattern == "*":
        return text != ""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(segment(pattern[1:], text[n:]) for n in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and segment(pattern[1:], text[1:])


words = st.text("ab*?", max_size=4).filter(lambda w: "**" not in w)


@given(
    st.lists(words | st.just("**"), min_size=1, max_size=5),
    st.lists(st.text("ab", max_size=3), min_size=1, max_size=5),
)
def test_it_matches_what_trying_everything_matches(pattern: list[str], key: list[str]) -> None:
    text = "/".join(pattern)
    if text:
        assert (compile_glob(text).fullmatch("/".join(key)) is not None) == plainly(pattern, key)


def test_no_key_makes_it_slow() -> None:
    began = time.process_time()
    for pattern, key in product(
        ["*a" * 20 + "b", "**/a/" * 10 + "b", "**/*a*a*a/" * 5 + "x"], ["a" * 1024, "a/" * 512, "aaa/" * 256]
    ):
        assert not compile_glob(pattern).fullmatch(key)
    assert time.process_time() - began < 1.0

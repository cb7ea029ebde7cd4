"""Documents that were good, and then were not: cut, doubled, swapped, overwritten."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def edited(draw: st.DrawFn, document: bytes, words: tuple[bytes, ...] = ()) -> bytes:
    """A document with a few edits; sometimes none at all."""
    piece = st.one_of(st.sampled_from([b"", *words]), st.binary(max_size=4))
    for _ in range(draw(st.integers(0, 4))):
        at, to = sorted((draw(st.integers(0, len(document))), draw(st.integers(0, len(document)))))
        to = min(to, at + draw(st.sampled_from([0, 1, 4, 40, len(document)])))
        instead = draw(st.one_of(piece, st.just(document[at:to] * 2)))
        document = (document[:at] + instead + document[to:])[:20_000]
    return document

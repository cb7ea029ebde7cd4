"""The bench drives the shipped guard, and an accident shows in its numbers."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="the bench needs the extra safedelete-purge[bench]")
pytest.importorskip("scipy", reason="the bench needs the extra safedelete-purge[bench]")


def test_wipe_is_found_and_a_normal_night_is_not_in_a_short_walk() -> None:
    from tests.bench import guard, series

    one = series.make(0, series.steady, 3)
    seen = list(guard.walk(one, 0, None, 2))
    score = guard.Score(seen, 1)
    wipes = score.share(lambda s: s.what in guard.WIPES and s.night > 0, 100.0)
    assert wipes is not None
    assert wipes[0] == 100.0
    assert guard.stops(score)["false_stops_per_1000"] == {
        "value": 0.0,
        "low": 0.0,
        "high": pytest.approx(3000 / (one.nights - 7), abs=0.01),
        "of": one.nights - 7,
    }


def test_mass_restore_is_refused_and_named_under_churn() -> None:
    from tests.bench import churn, guard, series

    one = series.make(0, series.weekly, 1)
    seen = [
        s
        for s in guard.walk(one, 0, churn.Fates(0.1, lumpy=True), 3)
        if s.what == "restore" and s.night >= 14
    ]
    assert seen
    assert all(s.refused and "SD212" in s.codes for s in seen)


def test_sets_share_no_series_and_one_set_is_always_the_same() -> None:
    from tests.bench import series

    a, b, again = (series.make(n, series.steady, 0) for n in (0, 1, 0))
    assert np.array_equal(a.counts, again.counts)
    assert not np.array_equal(a.counts[:20], b.counts[:20])

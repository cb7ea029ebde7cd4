"""What holds for every schedule, in every zone, at every instant."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from safedelete.core.schedule import Schedule, parse

ZONES = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "America/St_Johns",
        "Asia/Gaza",
        "Pacific/Apia",
        "Africa/Casablanca",
        "America/Sao_Paulo",
    ]
)
HOURS = st.sampled_from(["*", "0", "1-3", "*/4", "2", "23", "0,12"])
MINUTES = st.sampled_from(["*", "0", "30", "*/15", "*/7", "59", "1-59/2"])
CRONTABS = (
    st.tuples(
        MINUTES,
        HOURS,
        st.sampled_from(["*", "1", "31", "*/5", "29"]),
        st.sampled_from(["*", "3", "10-11", "2", "*/3"]),
        st.sampled_from(["*", "0", "1-5", "SAT,SUN"]),
    )
    .filter(lambda f: (f[2], f[3], f[4]) != ("31", "2", "*"))
    .map(" ".join)
)
AWS = st.tuples(
    MINUTES,
    HOURS,
    st.sampled_from(["* * ?", "L * ?", "LW * ?", "15W * ?", "? * 2#1", "? * SUNL", "? 3,10 1"]),
    st.sampled_from(["*", "2020-2040"]),
).map(lambda p: f"cron({' '.join(p)})")
CALENDARS = st.sampled_from(
    [
        "hourly",
        "daily",
        "*:0/10",
        "*-*-* 02:30",
        "Sun *-*-* 1,2,3:0/30",
        "*-*~1 23:59:59",
        "*-03,10-* 2:*",
    ]
)
RATES = st.tuples(st.integers(2, 5000), st.sampled_from(["minutes", "hours"])).map(
    lambda p: f"rate({p[0]} {p[1]})"
)
SCHEDULES = st.tuples(CRONTABS | AWS | CALENDARS | RATES, ZONES).map(
    lambda p: parse(*p, anchor=datetime(2021, 5, 6, 7, 8, 9, tzinfo=UTC))
)
CHANGES = st.sampled_from(
    [
        "2026-03-29T01:00",
        "2026-10-25T01:00",
        "2010-11-07T02:31",
        "2011-12-30T10:00",
        "2018-11-04T03:00",
        "2026-10-03T15:30",
    ]
).map(lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC))
INSTANTS = st.datetimes(datetime(1999, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)) | st.tuples(
    CHANGES, st.timedeltas(-timedelta(hours=30), timedelta(hours=30))
).map(lambda p: p[0] + p[1])
THOROUGH = settings(deadline=None, max_examples=150)


@THOROUGH
@given(SCHEDULES, INSTANTS)
def test_next_is_strictly_after_and_previous_leads_back(schedule: Schedule, at: datetime) -> None:
    following = schedule.next(at)
    assert following is not None
    assert following > at
    back = schedule.previous(following)
    assert back is None or back <= at
    assert schedule.previous(following + timedelta(microseconds=1)) == following
    if back is not None:
        assert schedule.next(back) == following


@THOROUGH
@given(SCHEDULES, INSTANTS)
def test_occurrences_are_sorted_unique_and_those_that_next_walks_through(
    schedule: Schedule, at: datetime
) -> None:
    found = list(islice(schedule.occurrences(at, datetime(2190, 1, 1, tzinfo=UTC)), 40))
    assert found
    assert all(a < b for a, b in pairwise(found))
    assert found[0] >= at
    walked: datetime | None = at - timedelta(microseconds=1)
    for expected in found[:12]:
        assert walked is not None
        walked = schedule.next(walked)
        assert walked == expected


@THOROUGH
@given(SCHEDULES, INSTANTS, st.timedeltas(timedelta(0), timedelta(days=40)))
def test_start_is_inclusive_and_end_exclusive(schedule: Schedule, at: datetime, span: timedelta) -> None:
    run = schedule.next(at)
    assert run is not None
    assert next(schedule.occurrences(run, run + timedelta(microseconds=1))) == run
    assert list(schedule.occurrences(run, run)) == []
    split = at + span / 2
    halves = [
        *islice(schedule.occurrences(at, split), 500),
        *islice(schedule.occurrences(split, at + span), 500),
    ]
    assert halves[:500] == list(islice(schedule.occurrences(at, at + span), 500))


@settings(deadline=None, max_examples=60)
@given(SCHEDULES, INSTANTS)
def test_no_gap_within_two_years_is_outside_the_gaps(schedule: Schedule, at: datetime) -> None:
    gaps = schedule.gaps(at)
    assert gaps.shortest is not None
    assert gaps.longest is not None
    runs = list(islice(schedule.occurrences(at, at + timedelta(days=731)), 3000))
    for a, b in pairwise(runs):
        assert gaps.shortest <= b - a <= gaps.longest

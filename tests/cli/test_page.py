"""The page: complete in one file, honest, and right in a real browser."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from safedelete.cli.page import page, write_page
from safedelete.core.decision import Finding
from safedelete.core.outcome import Tally
from safedelete.core.plan import AgeProfile
from safedelete.core.run import RunState
from safedelete.core.say import sentence
from safedelete.errors import ConfigError
from safedelete.ports import RunRecord
from tests.cli.browser import Browser, browser
from tests.cli.runs import accepted, nights, plan_of

AT = datetime(2026, 8, 1, tzinfo=UTC)
EVIL = "<script>alert(1)</script>\"'&<img src=http://198.51.100.7/x>"


def jobs() -> list[tuple[str, list[RunRecord]]]:
    surge = nights(40, surge_at=39)
    long = nights(80, surge_at=30, job="expired-uploads")
    long[5] = replace(long[5], state=RunState.FAILED, reason="3 item(s) failed.")
    return [("login-events", surge), ("expired-uploads", long), ("new", nights(1)), ("reminders", [])]


# --- the text


def test_every_purge_has_its_chart_its_limit_and_its_runs() -> None:
    text = page(jobs(), AT)
    assert text.count('<svg viewBox="0 0 720') == 3
    assert text.count('<path class="limit" d="M') >= 3
    last = jobs()[0][1][0].decision
    assert last is not None
    assert sentence(last.measures[0], unit="rows") in text
    assert "(forecast); STOP" in text
    for _, records in jobs():
        for record in records:
            assert f"<code>{record.run}</code>" in text
    assert "No runs yet." in text


def test_the_drawings_are_well_formed_and_say_in_words_what_they_show() -> None:
    for svg in re.findall(r'<svg viewBox="0 0 (?:720|340).*?</svg>', page(jobs(), AT), flags=re.DOTALL):
        root = ET.fromstring(svg)
        named = root.attrib["aria-labelledby"].split()
        words = {child.attrib["id"]: child.text or "" for child in root if child.tag in ("title", "desc")}
        assert root.attrib["role"] == "img"
        assert list(words) == named
        assert all(len(text) > 20 for text in words.values())


def test_no_id_is_used_twice() -> None:
    ids = re.findall(r' id="([^"]+)"', page(jobs(), AT))
    assert len(ids) == len(set(ids))


def test_whatever_a_name_or_a_reason_holds_is_shown_and_not_obeyed() -> None:
    plan = plan_of(1, 5, job=EVIL)
    plan = replace(plan, targets=(replace(plan.targets[0], name=EVIL),))
    refused = nights(40, surge_at=39)[0]
    record = replace(nights(2)[0], job=EVIL, plan=plan, reason=EVIL, run=EVIL, decision=None)
    text = page([(EVIL, [record]), ("other", [accepted(refused, EVIL)])], AT)
    assert "<script" not in text
    assert "<img" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;") >= 5


def test_what_a_finding_says_of_a_key_is_shown_and_not_obeyed() -> None:
    refused = nights(40, surge_at=39)[0]
    assert refused.decision is not None
    measure = replace(refused.decision.measures[0], target=EVIL, rule=EVIL)
    found = Finding(
        code=EVIL, severity="refuse", message=f"s3://acme/up/{EVIL} may mean an object.", hint=EVIL
    )
    record = replace(
        refused, decision=replace(refused.decision, measures=(measure,), findings=(found,)), reason=EVIL
    )
    text = page([("uploads", [record])], AT)
    assert "<script" not in text
    assert "<img" not in text
    shown = "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;"
    assert f"s3://acme/up/{shown}" in text, "the message"
    assert f"<code>{shown}" in text, "the code"
    assert f"<li>{shown}" in text, "the target"


def tables(text: str) -> dict[str, list[dict[str, str]]]:
    """Every table's rows by the words of its caption, each cell by its heading."""
    found = {}
    for table in re.findall(r"<table>.*?</table>", text, flags=re.DOTALL):
        root = ET.fromstring(table)
        heads = ["".join(cell.itertext()) for cell in root.iter("th")]
        rows = [["".join(cell.itertext()) for cell in row.iter("td")] for row in root.iter("tr")]
        caption = "".join(next(root.iter("caption")).itertext())
        found[caption] = [dict(zip(heads, row, strict=True)) for row in rows if row]
    return found


def test_each_column_of_the_numbers_holds_what_its_heading_says() -> None:
    surge = nights(40, surge_at=39)[0]
    assert surge.decision is not None
    assert surge.plan is not None
    measure = replace(
        surge.decision.measures[0], expected=4_321.0, forecast=4_321.0, limit=7_654.0, rule="spread"
    )
    record = replace(surge, decision=replace(surge.decision, measures=(measure,)))
    found = tables(page([("login-events", [record])], AT))
    assert found["login_events: rows found by each run, newest first"] == [
        {
            "run at": f"{surge.plan.as_of:%Y-%m-%d %H:%M}",
            "state": "refused",
            "rows": "48,210",
            "expected": "4,321 (forecast)",
            "limit": "7,654",
            "set by": "spread",
        }
    ]


def test_each_column_of_the_runs_holds_what_its_heading_says() -> None:
    record = nights(2)[0]
    record = replace(
        record,
        started_at=datetime(2026, 7, 9, 3, 15, tzinfo=UTC),
        state=RunState.FAILED,
        tally={"login_events": Tally(deleted=11, failed=5, unknown=2, changed=700)},
        reason="5 item(s) failed.",
    )
    assert record.plan is not None
    record = replace(record, plan=plan_of(1, 1_234))
    found = tables(page([("login-events", [record])], AT))
    assert found["1 run, newest first"] == [
        {
            "started": "2026-07-09 03:15",
            "state": "failed",
            "planned": "1,234",
            "deleted": "11",
            "failed": "7",
            "why": "5 item(s) failed.",
            "run": record.run,
        }
    ]
    assert (
        "processed"
        in tables(page([("x", [replace(record, kind="job", plan=None)])], AT))["1 run, newest first"][0]
    )


def test_each_day_to_come_has_its_count() -> None:
    newest = nights(40)[0]
    assert newest.plan is not None
    ages = newest.plan.targets[0].ages
    assert isinstance(ages, AgeProfile)
    (caption,) = [c for c in tables(page(jobs()[2:3], AT)) if "becoming eligible after" in c]
    assert caption.startswith("login_events: rows becoming eligible after 2026-06-01 03:15:00Z")
    days = tables(page([("login-events", [newest])], AT))
    (rows,) = [rows for caption, rows in days.items() if "becoming eligible" in caption]
    assert rows == [{"day": str(day + 1), "rows": f"{dict(ages.days)[day]:,}"} for day in range(14)]


def test_a_share_of_a_prefix_is_not_called_one_of_a_table() -> None:
    record = nights(40, surge_at=39)[0]
    assert record.decision is not None
    plan = record.decision.plan
    plan = replace(plan, targets=(replace(plan.targets[0], name="s3://acme/tmp/", kind="objects"),))
    measure = replace(record.decision.measures[0], target="s3://acme/tmp/", share=0.25)
    record = replace(record, plan=plan, decision=replace(record.decision, plan=plan, measures=(measure,)))
    text = page([("tmp", [record])], AT)
    assert "48,210 objects (25.0% of the prefix)" in text
    assert "of the table" not in text


def test_nothing_in_it_points_outside() -> None:
    text = page(jobs(), AT)
    assert not re.findall(r"(?:https?:)?//[a-z0-9]", text.replace("xmlns=", ""))
    assert not re.findall(r"<(?:script|link|img|iframe|object|embed|base|form)\b", text)
    assert not re.findall(r"(?:url\(|@import|@font-face)", text)


# --- the file


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "history.html"
    target.write_text("the old one")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safedelete.cli.page.os.fsync", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        write_page(target, jobs())
    assert target.read_text() == "the old one"


def test_a_folder_that_is_not_there_is_a_mistake_of_use(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file") as raised:
        write_page(tmp_path / "nowhere" / "history.html", jobs())
    assert int(raised.value.exit_code) == 2


# --- in a browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "history.html"
    write_page(path, jobs())
    return path


SCREENS = {
    "desk": {"width": 1200},
    "desk, dark": {"width": 1200, "dark": True},
    "phone": {"width": 390},
    "phone, dark": {"width": 390, "dark": True},
    "small phone": {"width": 320},
    "paper": {"width": 720, "media": "print"},
}


@pytest.mark.parametrize("screen", SCREENS.values(), ids=SCREENS.keys())
def test_it_renders_without_a_complaint_or_a_request_and_fits(
    chromium: Browser, written: Path, screen: dict[str, object]
) -> None:
    chromium.visit(written, **screen)  # type: ignore[arg-type]
    assert chromium.complaints() == []
    assert chromium.requests() == [written.resolve().as_uri()]
    assert chromium.value("document.documentElement.scrollWidth") <= int(str(screen["width"]))
    shown = "[...document.querySelectorAll('figure svg[role=img]')].filter(s => s.getBoundingClientRect().width > 0)"
    assert chromium.value(f"{shown}.length") == 3, "one drawing a purge, the one that fits"
    assert chromium.value(f"{shown}.every(s => s.getBoundingClientRect().right <= innerWidth)")
    smallest = chromium.value(
        f"Math.min(...{shown}.flatMap(s => [...s.querySelectorAll('text.num')].map("
        "t => parseFloat(getComputedStyle(t).fontSize) * s.getBoundingClientRect().width / s.viewBox.baseVal.width)))"
    )
    assert smallest >= 9.5, "numbers on the axis can be read"


def test_light_and_dark_can_both_be_read(chromium: Browser, written: Path) -> None:
    luminance = (
        "(c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255)"
        ".map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);"
        " return 0.2126 * r + 0.7152 * g + 0.0722 * b; })"
    )
    back = f"{luminance}(getComputedStyle(document.body).backgroundColor)"
    found = {}
    for dark in (False, True):
        chromium.visit(written, width=800, dark=dark)
        found[dark] = chromium.value(back)
        for selector, prop, least in (
            ("body", "color", 7.0),
            (".soft", "color", 4.5),
            ("figcaption", "color", 4.5),
            ("svg .num", "fill", 4.5),
            ("rect.done", "fill", 3.0),
            ("rect.refused", "fill", 3.0),
            ("rect.failed", "fill", 3.0),
            ("path.limit", "stroke", 3.0),
        ):
            contrast = chromium.value(
                f"(() => {{ const a = {luminance}(getComputedStyle(document.querySelector('{selector}')).{prop}),"
                f" b = {back}; return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }})()"
            )
            assert contrast >= least, (selector, dark)
    assert found[False] > 0.8
    assert found[True] < 0.05


def test_it_prints_in_black_on_white_whatever_the_screen(chromium: Browser, written: Path) -> None:
    chromium.visit(written, width=720, media="print", dark=True)
    assert chromium.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.value("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert chromium.value("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    assert chromium.printed().startswith(b"%PDF-")


def test_every_table_has_its_caption_and_headings(chromium: Browser, written: Path) -> None:
    chromium.visit(written, width=800)
    assert chromium.value("document.querySelectorAll('table').length") >= 6
    assert chromium.value("[...document.querySelectorAll('table')].every(t => t.caption && t.tHead)")
    assert chromium.value("[...document.querySelectorAll('thead th')].every(h => h.scope === 'col')")
    assert chromium.value("document.documentElement.lang") == "en"

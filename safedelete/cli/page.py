"""Write the history of purges as one page that needs nothing else: no network, no script, no font. Readable on a
phone, in print, by daylight and in the dark, and by ear: every drawing has its numbers in a table below it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from safedelete.cli.look import planned, sentences, when
from safedelete.cli.series import MARKS, Point, Series, series
from safedelete.cli.svg import described, drawing
from safedelete.core.decision import Approved, codes_of
from safedelete.core.outcome import Tally
from safedelete.core.printable import printable
from safedelete.core.say import at_most
from safedelete.errors import ConfigError
from safedelete.ports import RunRecord

WIDE: Final = 720
NARROW: Final = 340
"""Two drawings, of which the page shows the one that fits: scaled down to a phone, text could not be read."""

STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--soft:#5b6470;--line:#d5dae0;--done:#3b6fb6;--refused:#c2410c;--expired:#6b7280;
--failed:#a11d33;--unfinished:#8a6d00;--coming:#9db8dc;--limit:#b3261e;--expected:#1c2024;--card:#f6f7f9}
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e6e9ec;--soft:#9aa4af;--line:#373e46;--done:#6ea3e6;
--refused:#f08a4b;--expired:#9aa4af;--failed:#f2788a;--unfinished:#d9b93c;--coming:#6f93c4;--limit:#ff8078;--expected:#f2f4f6;--card:#1d2125}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:60rem;background:var(--bg);color:var(--fg);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.2rem;margin:2rem 0 .3rem;border-top:1px solid var(--line);padding-top:1rem}
h3{font-size:1rem;margin:1.2rem 0 .2rem}p{margin:.3rem 0}.soft,figcaption{color:var(--soft);font-size:.875rem}
figure{margin:.5rem 0}svg{display:block;width:100%;height:auto;font:12px system-ui,-apple-system,"Liberation Sans",sans-serif}
.wide{max-width:720px}.narrow{display:none;max-width:440px}
.grid{stroke:var(--line)}.axis{stroke:var(--soft)}.now{stroke:var(--soft);stroke-dasharray:2 3}
text{fill:var(--soft)}.num,.end{text-anchor:end}.mark{text-anchor:middle;font-size:10px;fill:var(--fg)}
.done{fill:var(--done)}.refused{fill:var(--refused)}.expired{fill:var(--expired)}.failed{fill:var(--failed)}.unfinished{fill:var(--unfinished)}
.coming{fill:none;stroke:var(--coming);stroke-width:1.2}.limit{fill:none;stroke:var(--limit);stroke-width:1.6;stroke-dasharray:5 3}
.expected{fill:var(--expected);stroke:var(--bg)}
.said{fill:var(--limit);stroke:var(--bg);stroke-width:3px;stroke-linejoin:round;paint-order:stroke}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding:0;margin:.3rem 0;list-style:none;font-size:.875rem;color:var(--soft)}
.key svg{display:inline-block;width:18px;height:12px;vertical-align:-1px;margin-right:.3rem}
.say{background:var(--card);border-left:4px solid var(--done);padding:.5rem .8rem;margin:.5rem 0}
.say.stop{border-color:var(--refused)}.say ul{margin:.3rem 0 0;padding-left:1.1rem}
.scroll{overflow-x:auto;margin:.3rem 0}.scroll:focus-visible{outline:2px solid var(--done)}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;width:100%}
caption{text-align:left;color:var(--soft);padding:.2rem 0}
th,td{padding:.25rem .6rem .25rem 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:normal;white-space:nowrap}
td.n,th.n{text-align:right}td.why{white-space:normal;min-width:14rem;overflow-wrap:anywhere}
code{font-family:ui-monospace,"Liberation Mono",monospace;font-size:.85em}
summary{cursor:pointer;padding:.3rem 0}
@media (max-width:560px){.wide{display:none}.narrow{display:block}body{padding:.75rem}}
@media print{:root{color-scheme:light;--bg:#fff;--fg:#000;--soft:#444;--line:#bbb;--done:#3b6fb6;--refused:#c2410c;--expired:#555;--failed:#a11d33;
--unfinished:#8a6d00;--coming:#7d9cc6;--limit:#b3261e;--expected:#000;--card:#fff}
body{max-width:none;padding:0;font-size:10pt}.wide{display:block;max-width:none}.narrow{display:none}
.scroll{overflow:visible}figure,.say,tr{break-inside:avoid}h2,h3{break-after:avoid}thead{display:table-header-group}
table{font-size:8pt}td.why{min-width:0}th,td{padding-right:.4rem}
rect,circle,.say{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""

KEY: Final = (
    ("", '<rect class="done" x="3" y="1" width="10" height="11"/>', "successful run"),
    ("refused", '<rect class="refused" x="3" y="1" width="10" height="11"/>', "refused (R)"),
    ("expired", '<rect class="expired" x="3" y="1" width="10" height="11"/>', "expired (E)"),
    ("failed", '<rect class="failed" x="3" y="1" width="10" height="11"/>', "failed (F)"),
    ("unfinished", '<rect class="unfinished" x="3" y="1" width="10" height="11"/>', "unfinished (U)"),
    ("expected", '<circle class="expected" cx="8" cy="6" r="2.5"/>', "expected or forecast"),
    ("limit", '<path class="limit" d="M0 6H18"/>', "limit of each run"),
    ("coming", '<rect class="coming" x="3" y="1" width="10" height="10"/>', "to come, by the time column"),
)


def write_page(path: Path, jobs: Sequence[tuple[str, Sequence[RunRecord]]]) -> None:
    """Write the page; complete and on disk when this returns, and replaced in one step.

    Args:
        path: Where to.
        jobs: Names, each with its runs, newest first.

    Raises:
        ConfigError: The file cannot be written.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(page(jobs, datetime.now(UTC)))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise ConfigError(
            f"The page {path} cannot be written: {error.strerror}.",
            hint="Name a file in a folder that can be written.",
        ) from error


def page(jobs: Sequence[tuple[str, Sequence[RunRecord]]], at: datetime) -> str:
    """Return the page.

    Args:
        jobs: Names, each with its runs, newest first.
        at: When it was made, UTC.
    """
    title = "Purge history" if len(jobs) != 1 else f"Purge history: {jobs[0][0]}"
    body = "\n".join(
        part for number, (name, records) in enumerate(jobs) for part in _job(number, name, records)
    )
    # As a whole: HTML has no use for a control character, and no way to escape one.
    return printable(f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p class="soft">Made on <time datetime="{at.isoformat()}">{when(at)}</time>. All times are UTC.</p>
{body or "<p>No jobs.</p>"}
</main>
</body>
</html>
""")


def _job(number: int, name: str, records: Sequence[RunRecord]) -> Iterator[str]:
    yield f'<section aria-labelledby="j{number}"><h2 id="j{number}">{escape(name)}</h2>'
    if not records:
        yield "<p>No runs yet.</p></section>"
        return
    yield from _said(records[0])
    for place, one in enumerate(series(records)):
        yield from _figure(one, f"c{number}-{place}")
    yield from _runs(records)
    yield "</section>"


def _said(record: RunRecord) -> Iterator[str]:
    decision = record.decision
    if decision is None:
        bad = " stop" if MARKS[record.state] else ""
        yield (
            f'<div class="say{bad}"><strong>Last run: {escape(record.state.value)}</strong>, '
            f"{when(record.started_at)}. {escape(record.reason)}</div>"
        )
        return
    stop = "" if isinstance(decision, Approved) else " stop"
    verdict = "approved" if isinstance(decision, Approved) else "refused; nothing was deleted"
    yield (
        f'<div class="say{stop}"><strong>Last run: {escape(record.state.value)}</strong> '
        f"(guard: {verdict}), {when(record.started_at)}"
    )
    lines = [f"{escape(m.target)}: {escape(said)}" for m, said in sentences(decision)]
    lines += [f"<code>{escape(f.code)}</code> {escape(f.message)}" for f in decision.findings]
    yield "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul></div>"


def _figure(one: Series, chart: str) -> Iterator[str]:
    yield f"<h3>{escape(one.target)}</h3><figure>"
    yield f'<div class="wide">{drawing(one, width=WIDE, most=60, name=chart + "w")}</div>'
    yield f'<div class="narrow">{drawing(one, width=NARROW, most=24, name=chart + "n")}</div>'
    used: set[str] = {point.mark for point in one.points} | ({"coming"} if one.coming else set())
    used |= {"expected"} if any(point.expected for point in one.points) else set()
    used |= {"limit"} if any(point.limit is not None for point in one.points) else set()
    items = "".join(
        f'<li><svg viewBox="0 0 18 12" aria-hidden="true">{shape}</svg>{label}</li>'
        for name, shape, label in KEY
        if name in used
    )
    yield f'<ul class="key">{items}</ul>'
    yield f"<figcaption>{escape(described(one))}</figcaption></figure>"
    yield f"<details><summary>The numbers of this chart ({_runs_said(len(one.points))})</summary>"
    rows = "".join(_number(point) for point in reversed(one.points))
    yield _table(
        f"{escape(one.target)}: {one.unit} found by each run, newest first",
        [("run at", ""), ("state", ""), (one.unit, "n"), ("expected", "n"), ("limit", "n"), ("set by", "")],
        rows,
    )
    if one.coming and one.after is not None:
        days = "".join(
            f'<tr><td>{day}</td><td class="n">{n:,}</td></tr>' for day, n in enumerate(one.coming, 1)
        )
        yield _table(
            f"{escape(one.target)}: {one.unit} becoming eligible after {when(one.after)}, by the time column",
            [("day", ""), (one.unit, "n")],
            days,
        )
    yield "</details>"


def _number(point: Point) -> str:
    value = "unknown" if point.value is None else f"{point.value:,}"
    expected = (
        "" if point.expected is None else f"{point.expected:,.0f}{' (forecast)' if point.forecast else ''}"
    )
    limit = "" if point.limit is None else at_most(point.limit)
    return (
        f'<tr><td>{_minute(point.at)}</td><td>{point.mark or "successful"}</td><td class="n">{value}</td>'
        f'<td class="n">{expected}</td><td class="n">{limit}</td><td>{escape(point.rule)}</td></tr>'
    )


def _runs(records: Sequence[RunRecord]) -> Iterator[str]:
    rows = []
    for record in records:
        total = sum(record.tally.values(), Tally())
        counts = [f"{total.deleted:,}", f"{total.failed + total.unknown:,}"] if record.tally else ["", ""]
        found = planned(record)
        rows.append(
            f"<tr><td>{_minute(record.started_at)}</td><td>{escape(record.state.value)}</td>"
            f'<td class="n">{f"{found:,}" if isinstance(found, int) else escape(str(found))}</td>'
            f'<td class="n">{counts[0]}</td><td class="n">{counts[1]}</td>'
            f'<td class="why">{escape(_why(record))}</td><td><code>{escape(record.run)}</code></td></tr>'
        )
    heads = [
        ("started", ""),
        ("state", ""),
        ("planned", "n"),
        ("processed" if records and records[0].kind == "job" else "deleted", "n"),
        ("failed", "n"),
        ("why", ""),
        ("run", ""),
    ]
    yield "<h3>Runs</h3>"
    yield _table(f"{_runs_said(len(records))}, newest first", heads, "".join(rows))


def _runs_said(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _minute(instant: datetime) -> str:
    return f'<time datetime="{instant.isoformat()}">{instant:%Y-%m-%d %H:%M}</time>'


def _why(record: RunRecord) -> str:
    said = ", ".join(codes_of(record.decision.findings)) if record.decision else ""
    accepted = record.decision.approval if isinstance(record.decision, Approved) else None
    parts = [said, record.reason, f"accepted by {accepted.who}: {accepted.reason}" if accepted else ""]
    return "; ".join(part for part in parts if part)


def _table(caption: str, heads: Sequence[tuple[str, str]], rows: str) -> str:
    """Lay out a table that scrolls within itself, by keyboard too, where it is wider than the page."""
    head = "".join(f'<th scope="col" class="{kind}">{escape(label)}</th>' for label, kind in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )

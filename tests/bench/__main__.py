"""Run every measurement, print them as one table, and write ``.bench/results.json``.

    python -m tests.bench [NAME...]

A measurement is a module ``tests/bench/bench_NAME.py`` with a function ``measure()`` that starts what it needs, stops
it again, and returns a list of results: ``{name, ours_s, base_s, base, ratio, goal, met}``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from tabulate import tabulate

from tests.bench.result import Result

HERE = Path(__file__).parent
RESULTS = HERE.parent.parent / ".bench" / "results.json"


def names() -> list[str]:
    return sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which of: {', '.join(names()) or 'none yet'}"
    )
    chosen = parser.parse_args(argv).names or names()
    unknown = sorted(set(chosen) - set(names()))
    if unknown or not chosen:
        parser.error(
            f"no measurement called {', '.join(unknown) or 'anything'}; there are: {', '.join(names()) or 'none'}"
        )
    results: list[Result] = []
    for name in chosen:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        results += import_module(f"tests.bench.bench_{name}").measure()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(tabulate(results, headers="keys", floatfmt=".3g"))
    goals = [r for r in results if r["goal"] is not None]
    print(f"\n{sum(r['met'] for r in goals)} of {len(goals)} goals met; written to {RESULTS}")
    return 0 if all(r["met"] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Apply each mutant to a scratch copy of the code, and run the tests that have to notice.

    python -m tests.mutants [NAME...]

Caught is a mutant with which a test fails. A patch that does not apply, tests that cannot even be collected, a fixture that
fails and a name that nobody has defined are failures of this program's own: a mutant that is no program any more would be
caught by anything. The tests have to pass on the unbroken copy first. The last line is ``N of N caught``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.manifest import ROOT, Mutant, mutants

PARTS = (
    "safedelete",
    "tests",
    "examples",
    "docs",
    "pyproject.toml",
    "mkdocs.yml",
    "README.md",
    "CHANGELOG.md",
)
FAILED, PASSED = 1, 0
"""pytest's exit codes; every other one says that the tests did not run."""
NO_PROGRAM = ("NameError", "UnboundLocalError", "SyntaxError", "ImportError", "ModuleNotFoundError")
"""How a test fails that was given a typing error instead of a mutant."""


def copy(to: Path) -> None:
    """Copy what the tests need; no compiled file, which a change within its second would not make stale."""
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, to / part, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / part).exists():
            shutil.copy(ROOT / part, to / part)


def run(tests: Sequence[str], scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run test files on the copy, until the first failure."""
    # Timeouts from a thread: a test may watch the process's signals, which the usual way would need when it fails.
    options = [
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--timeout-method=thread",
    ]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        check=False,
        cwd=scratch,
        # Its columns are how much pytest tells of each failure.
        env=os.environ | {"PYTHONPATH": str(scratch), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "300"},
        capture_output=True,
        text=True,
    )


def verdict(mutant: Mutant, scratch: Path) -> str:
    """Break the copy, run the mutant's tests, and put it right again; return what came of it."""
    objection = mutant.apply(scratch)
    if objection:
        return f"DOES NOT APPLY: {objection}"
    try:
        done = run(mutant.tests, scratch)
    finally:
        undone = mutant.apply(scratch, "--reverse")
        assert not undone, undone
    return judged(done.returncode, done.stdout, done.stderr)


def judged(status: int, said: str, complained: str = "") -> str:
    """Return what pytest's end says of a mutant."""
    if status == PASSED:
        return "SURVIVED: no test of these failed"
    failed = [line for line in said.splitlines() if line.startswith("FAILED ")]
    if status == FAILED and failed:
        test, _, why = failed[-1].removeprefix("FAILED ").partition(" - ")
        if why.startswith(NO_PROGRAM):
            return f"IS NO MUTANT: {test} failed with {why}"
        return f"caught by {test}"
    return f"DID NOT RUN: pytest ended with {status}, and no test failed\n{said[-2000:]}{complained[-2000:]}"


def main(argv: Sequence[str] | None = None) -> int:
    """Try the mutants of these names, or all."""
    known = {mutant.name: mutant for mutant in mutants()}
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all unless told otherwise")
    names = parser.parse_args(argv).names or list(known)
    if unknown := sorted(set(names) - known.keys()):
        parser.error(f"no mutant called {', '.join(unknown)}; there are: {', '.join(known)}")
    chosen = [known[name] for name in names]
    with tempfile.TemporaryDirectory(prefix="safedelete-mutants-") as folder:
        scratch = Path(folder)
        scratch.chmod(0o755)  # The servers run as accounts of their own, and may have to pass through here.
        copy(scratch)
        tests = list(dict.fromkeys(test for mutant in chosen for test in mutant.tests))
        print(f"the unbroken code, {len(tests)} test files ...", flush=True)
        done = run(tests, scratch)
        if done.returncode != PASSED:
            print(done.stdout[-4000:], done.stderr[-2000:])
            print("The tests fail on the unbroken code: every mutant would pass for caught.")
            return 1
        caught = 0
        for number, mutant in enumerate(chosen, 1):
            began = time.monotonic()
            said = verdict(mutant, scratch)
            caught += said.startswith("caught")
            what = f"promise {mutant.promise}" if mutant.promise else mutant.rule
            print(f"{number:2} {mutant.name} ({what}, {time.monotonic() - began:.0f} s): {said}", flush=True)
    print(f"{caught} of {len(chosen)} caught")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())

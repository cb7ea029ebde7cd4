"""The public interface as a strict type checker sees it.

``accepts.py`` must pass. Each wrong line of ``rejects.py`` carries the error it must raise; under
``warn_unused_ignores`` a line that becomes acceptable fails here.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy is not installed")
HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def mypy(file: Path, cache: Path) -> tuple[int, str]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--cache-dir",
            str(cache),
            str(file),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_a_job_file_of_the_documentation_is_accepted(cache: Path) -> None:
    code, output = mypy(HERE / "accepts.py", cache)
    assert (code, output) == (0, "")


def test_every_mistake_is_found_and_nothing_else_is(cache: Path) -> None:
    code, output = mypy(HERE / "rejects.py", cache)
    assert (code, output) == (0, "")


def test_without_its_ignores_every_marked_line_is_an_error(cache: Path, tmp_path: Path) -> None:
    lines = (HERE / "rejects.py").read_text().splitlines()
    marked = {n for n, line in enumerate(lines, 1) if "# type: ignore[" in line}
    bare = tmp_path / "bare.py"
    bare.write_text("\n".join(re.sub(r"\s*# type: ignore\[.*", "", line) for line in lines) + "\n")
    code, output = mypy(bare, cache)
    assert code == 1
    assert {int(n) for n in re.findall(r"bare\.py:(\d+): error", output)} == marked
    assert len(marked) > 40

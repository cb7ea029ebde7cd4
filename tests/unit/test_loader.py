"""A job file is what its text says now."""

from __future__ import annotations

import os
import py_compile
from pathlib import Path

import pytest

from safedelete.errors import ConfigError
from safedelete.loader import load

SOURCE = """
from datetime import timedelta
from safedelete import job

@job("sweep", schedule="cron(0 3 * * ? *)", timeout=timedelta(minutes=10))
def sweep(run):
    pass
"""


def test_an_edit_counts_though_size_and_date_of_the_file_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.py"
    path.write_text(SOURCE, encoding="utf-8")
    os.utime(path, (0, 0))
    # What a test run, or an earlier image, has left beside it.
    py_compile.compile(str(path), doraise=True)
    path.write_text(SOURCE.replace("minutes=10", "minutes=90"), encoding="utf-8")
    os.utime(path, (0, 0))
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    assert load(path).one(None).timeout.total_seconds() == 90 * 60
    assert len(list((tmp_path / "__pycache__").iterdir())) == 1


def test_a_file_that_connects_in_what_it_imports_is_told_both_lines(tmp_path: Path) -> None:
    (tmp_path / "models_that_connect.py").write_text(
        "import sqlalchemy as sa\n\ndef first():\n"
        "    return sa.create_engine('sqlite://').connect()\n\nfirst()\n",
        encoding="utf-8",
    )
    path = tmp_path / "jobs.py"
    path.write_text(f"import models_that_connect\n{SOURCE}", encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load(path)
    said = "the job file opens a database connection while it loads"
    assert str(raised.value) == f"{path}:1: {said} (line 1, by {tmp_path}/models_that_connect.py:4)."

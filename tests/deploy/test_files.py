"""A file that was not rendered is never overwritten unasked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from safedelete.deploy.as_yaml import as_yaml
from safedelete.deploy.files import MARK, compare, write
from safedelete.errors import ConfigError
from tests.deploy.aws import JOBS, TOML
from tests.e2e.world import run_here

OURS = f"# {MARK}\nnew\n"


@pytest.mark.parametrize(
    "theirs",
    ["", "mine\n", "\n" * 5 + f"# beside it lies what says {MARK}\n"],
    ids=["empty", "without the mark", "the mark further down"],
)
def test_what_is_not_ours_is_overwritten_by_force_alone(tmp_path: Path, theirs: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(theirs)
    with pytest.raises(ConfigError, match="not written by `safedelete render`; nothing was written"):
        write({"a.yaml": OURS, "b.yaml": OURS}, tmp_path)
    assert path.read_text() == theirs
    assert not (tmp_path / "b.yaml").exists()
    assert [one.foreign for one in compare({"a.yaml": OURS}, tmp_path)] == [True]
    # Nor is it taken for a file of ours that is no longer rendered.
    assert [one.path.name for one in compare({"b.yaml": OURS}, tmp_path)] == ["b.yaml"]
    write({"a.yaml": OURS}, tmp_path, force=True)
    assert path.read_text() == OURS


def test_what_is_ours_is_brought_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(OURS.replace("new", "old"))
    [difference] = compare({"a.yaml": OURS}, tmp_path)
    assert not difference.foreign
    assert write({"a.yaml": OURS}, tmp_path) == [tmp_path / "a.yaml"]
    assert compare({"a.yaml": OURS}, tmp_path) == []


def test_every_kind_bears_its_mark_where_it_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "safedelete.toml").write_text(TOML)
    for kind in ("cloudformation", "taskdef", "iam", "grants"):
        out = tmp_path / kind
        arguments = ["render", kind, str(tmp_path / "jobs.py"), "--out", str(out)]
        assert run_here(arguments, {}).code == 0
        for path in out.iterdir():
            path.write_text(path.read_text().rstrip() + " \n")
        assert run_here(arguments, {}).code == 0


def test_check_says_which_file_takes_force(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "safedelete.toml").write_text(TOML)
    arguments = ["render", "cloudformation", str(tmp_path / "jobs.py"), "--out", str(tmp_path / "deploy")]
    said = run_here([*arguments, "--check"], {}).said
    assert "--force" not in said
    assert "SD410" not in said
    (tmp_path / "deploy").mkdir()
    path = tmp_path / "deploy" / "safedelete.cloudformation.yaml"
    path.write_text("Resources: {}\n")
    ended = run_here([*arguments, "--check"], {})
    assert ended.code == 10
    assert f"--out {tmp_path / 'deploy'} --force" in ended.said
    assert f"Not written by render, and overwritten by --force alone: {path}" in ended.said


def test_without_pyyaml_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match="needs PyYAML") as raised:
        as_yaml({}, width=80)
    assert "safedelete-purge[deploy]" in (raised.value.hint or "")

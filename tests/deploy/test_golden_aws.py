"""What is rendered for AWS, and the grants, are byte for byte those kept in ``golden/``: what a change does is read there.

After a change that is meant, write them anew, and look at the difference::

    for kind in cloudformation taskdef iam grants; do
        safedelete render $kind tests/deploy/golden/aws/jobs.py --out tests/deploy/golden/$kind
    done
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.world import run_here

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("kind", ["cloudformation", "taskdef", "iam", "grants"])
def test_what_is_rendered_is_what_is_kept(kind: str, tmp_path: Path) -> None:
    ended = run_here(["render", kind, str(GOLDEN / "aws" / "jobs.py"), "--out", str(tmp_path)], {})
    assert ended.code == 0, ended.said
    assert "[SD" not in ended.said
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_bytes() for path in (GOLDEN / kind).iterdir()}
    assert made == kept, f"write them anew as this file's first lines say, if it is meant: {__file__}"


def test_the_linter_has_nothing_to_say_of_the_kept_template() -> None:
    from cfnlint.api import lint_file

    [path] = (GOLDEN / "cloudformation").iterdir()
    assert [f"{match.rule.id} {match.message}" for match in lint_file(path) if match.rule.id[0] in "EW"] == []

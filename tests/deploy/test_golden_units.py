"""Units and alert rules are, byte for byte, those that are kept in ``golden/``: what a change does to them is read there.

After a change that is meant, write them anew, and look at the difference::

    for kind in systemd prometheus; do
        safedelete render $kind tests/deploy/golden/units/jobs.py --out tests/deploy/golden/$kind
    done
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.world import run_here

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("kind", ["systemd", "prometheus"])
def test_what_is_rendered_is_what_is_kept(kind: str, tmp_path: Path) -> None:
    ended = run_here(["render", kind, str(GOLDEN / "units" / "jobs.py"), "--out", str(tmp_path)], {})
    assert ended.code == 0, ended.said
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_bytes() for path in (GOLDEN / kind).iterdir()}
    assert made == kept, f"write them anew as this file's first lines say, if it is meant: {__file__}"

"""Ask the advisory database about every package of an environment, and say plainly how many it could be asked about.

    python .ci/audit.py PYTHON      # pip-audit has to be importable here; PYTHON is the environment's interpreter

Ends with 1 when a package has a known vulnerability. That nobody could be asked is said, and is neither a failure nor a pass.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

SECONDS = 90
"""For the whole audit: an advisory service that answers slowly must not hold up CI. One that does not ends it sooner."""


def judge(document: Any) -> tuple[int, list[str]]:
    """Return the exit status and what to say of pip-audit's answer."""
    packages = document["dependencies"]
    asked = [package for package in packages if "vulns" in package]
    found = [(package, advisory) for package in asked for advisory in package["vulns"]]
    lines = [
        f"{p['name']} {p.get('version', '?')}: {a.get('id', 'a vulnerability')}, "
        f"fixed in {', '.join(a.get('fix_versions') or ()) or 'no version that is told'}"
        for p, a in found
    ]
    if not asked:
        return 0, [f"NOT AUDITED: none of {len(packages)} packages could be asked about. This is not a pass."]
    lines.append(f"audited {len(asked)} of {len(packages)} packages: {len(found)} known vulnerabilities")
    if len(asked) < len(packages):
        lines.append(f"NOT AUDITED: the other {len(packages) - len(asked)}.")
    return int(bool(found)), lines


def main(python: str) -> int:
    """Audit an environment."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--format",
        "json",
        "--progress-spinner",
        "off",
        "--timeout",
        "5",
    ]
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"PIPAPI_PYTHON_LOCATION": python},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"NOT AUDITED: no answer within {SECONDS} s. This is not a pass.")
        return 0
    try:
        document = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        print(f"NOT AUDITED: pip-audit could not ask ({last}). This is not a pass.")
        return 0
    # Judged where no error is caught: an answer that cannot be read must not pass for no answer.
    status, lines = judge(document)
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

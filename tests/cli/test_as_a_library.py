"""Used from Python, safedelete writes nothing to the host's standard output."""

from __future__ import annotations

import subprocess
import sys


def test_log_lines_go_to_logging_and_not_to_standard_output() -> None:
    script = (
        "import logging, sys; logging.basicConfig(level=logging.INFO, stream=sys.stderr, format='%(name)s %(message)s');"
        "import safedelete.wiring, structlog;"
        "structlog.get_logger('safedelete.plan').info('plan', job='x', message='m', name='n')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr.startswith("safedelete.plan event='plan'")
    assert "job='x'" in done.stderr

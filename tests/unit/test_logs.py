"""What a job logs goes out without its secrets, to the log and to the lines that a ping sends along."""

from __future__ import annotations

import pytest
import structlog

from safedelete.cli.logs import configure
from safedelete.metrics.tail import tail


@pytest.mark.parametrize(
    "value",
    [
        "+ mysqldump -phunter22 app",
        ["mysqldump", "-phunter22", "app"],
        ("curl", "-u", "me:hunter22"),
        "curl -u me:hunter22 https://x",
    ],
)
def test_a_command_is_shown_without_its_password(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    configure(verbose=True)
    structlog.get_logger("a-job").info("about to start a program", argv=value)
    shown = capsys.readouterr().err
    last = tail().splitlines()[-1]
    for text in (shown, last):
        assert "about to start a program" in text
        assert "***" in text
        assert "hunter22" not in text

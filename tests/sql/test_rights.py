"""Of a role's grants only what is plain counts as a right: everything else is no evidence."""

from __future__ import annotations

from typing import Any

import pytest

from safedelete.sql.rights import Rights

USAGE = "GRANT USAGE ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*A7DF'"


class Saying:
    def __init__(self, *lines: str) -> None:
        self.lines = lines

    def execute(self, _: object) -> Any:
        return self

    def scalars(self) -> Any:
        return iter(self.lines)


def may(*lines: str, schema: str = "my_app", table: str = "t") -> bool:
    return Rights.read(Saying(USAGE, *lines)).on("TRIGGER", schema, table)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line",
    [
        "GRANT SELECT, DELETE, TRIGGER ON `my_app`.`t` TO `u`@`%`",
        'GRANT SELECT ("id"), TRIGGER ON "my_app"."t" TO "u"@"%"',
        "GRANT ALL PRIVILEGES ON `my\\_app`.* TO `u`@`%` WITH GRANT OPTION",
        "GRANT TRIGGER ON `my%`.* TO `a_role`",
        "GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost`",
    ],
)
def test_a_plain_grant_is_a_right(line: str) -> None:
    assert may(line)


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("GRANT `TRIGGER` TO `u`@`%`",),
        ("GRANT SELECT, DELETE ON `my_app`.`t` TO `u`@`%`",),
        ("GRANT TRIGGER ON `my_app`.`other` TO `u`@`%`",),
        # A pattern is one only where no table is named, and what is escaped in it stands for itself.
        ("GRANT TRIGGER ON `my%`.`t` TO `u`@`%`",),
        ("GRANT TRIGGER ON `my\\_other`.* TO `u`@`%`", "GRANT TRIGGER ON `my.app`.* TO `u`@`%`"),
        # The server takes the nearest pattern alone.
        ("GRANT TRIGGER ON `my%`.* TO `u`@`%`", "GRANT SELECT ON `my\\_app`.* TO `u`@`%`"),
        # What is taken away again is not looked into.
        ("GRANT TRIGGER ON *.* TO `u`@`%`", "REVOKE TRIGGER ON `my_app`.* FROM `u`@`%`"),
        # A name can spell anything.
        ("GRANT SELECT (`x`, `TRIGGER ON *.* TO`) ON `my_app`.`t` TO `u`@`%`",),
        ("GRANT SELECT ON `x`.`a ON *.* TO` TO `u`@`%`",),
    ],
)
def test_what_is_not_plain_is_no_right(lines: tuple[str, ...]) -> None:
    assert not may(*lines)


def test_only_a_right_on_everything_is_one_everywhere() -> None:
    def everywhere(*lines: str) -> bool:
        return Rights.read(Saying(*lines)).everywhere("SELECT")  # type: ignore[arg-type]

    assert everywhere("GRANT SELECT, PROCESS ON *.* TO `u`@`%`")
    assert not everywhere(USAGE, "GRANT SELECT ON `%`.* TO `u`@`%`")
    assert not everywhere("GRANT SELECT ON *.* TO `u`@`%`", "REVOKE SELECT ON `secret`.* FROM `u`@`%`")

"""Objects that several rows may name: when that has to be asked, and that it is said when asking is slow."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tests.sql.acts import fill, target
from tests.sql.conftest import AS_OF, Server


@pytest.mark.parametrize("indexed", [False, True])
def test_a_plan_says_that_a_key_column_without_an_index_is_looked_up_row_by_row(
    server: Server, uploads: sa.Table, indexed: bool
) -> None:
    fill(server, uploads, 3)
    if indexed:
        length = "(500)" if server.kind.startswith("maria") or server.kind == "mysql" else ""
        server.sql(f"CREATE INDEX by_key ON uploads (s3_key{length})")
    notes = target(server, uploads).survey(AS_OF, portion=None, since=None).notes
    assert any("uploads.s3_key has no index" in note for note in notes) is not indexed

"""MariaDB on loopback, from the machine's own binaries; no wheel ships them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence

from safedelete.testing.servers.machine import (
    Account,
    ServerUnavailableError,
    find_program,
    free_port,
    unprivileged_account,
)
from safedelete.testing.servers.postgres import checked_name
from safedelete.testing.servers.process import Server

_OWNER = "safedelete"
_PASSWORD = "safedelete"  # noqa: S105 - a made-up one, for a server on loopback that lives as long as a test


class MariaDB(Server):
    """A private MariaDB, its data gone when it stops.

    Args:
        settings: Further settings of ``[mariadbd]``, by their command-line names.
        start_timeout: Seconds to wait for its first answer.
    """

    name = "mariadb"

    def __init__(self, *, settings: Mapping[str, str] | None = None, start_timeout: float = 60.0) -> None:
        super().__init__(start_timeout=start_timeout)
        self.settings = dict(settings or {})
        self.port = 0

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the first database, as a user with all rights on it, and PROCESS (not SUPER)."""
        return self.database_url(_OWNER)

    @property
    def superuser_url(self) -> str:
        """SQLAlchemy URL of the first database, as root."""
        return self.database_url(_OWNER, user="root")

    def database_url(self, database: str, *, user: str = _OWNER) -> str:
        """Return the SQLAlchemy URL of a database on this server."""
        return f"mysql+pymysql://{user}:{_PASSWORD}@127.0.0.1:{self.port}/{database}?charset=utf8mb4"

    def create_database(self, name: str | None = None) -> str:
        """Make an empty database and return its SQLAlchemy URL.

        Args:
            name: Lower-case letters, digits and underscores; None for a fresh one.
        """
        name = checked_name(name or f"sd_{secrets.token_hex(6)}")
        self._admin(
            f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            f"GRANT ALL ON `{name}`.* TO '{_OWNER}'@'%'",
        )
        return self.database_url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database of this server."""
        self._admin(f"DROP DATABASE IF EXISTS `{checked_name(name)}`")

    def _admin(self, *statements: str) -> None:
        import pymysql

        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", password=_PASSWORD, connect_timeout=5
        )
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()

    def _account(self) -> Account:
        return unprivileged_account("mysql")

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str]]:
        account = self._account()
        server = find_program("mariadbd")
        installer = find_program("mariadb-install-db")
        if server is None or installer is None:
            raise ServerUnavailableError(
                "No MariaDB server here: mariadbd and mariadb-install-db are not in $PATH nor in /usr/sbin.",
                hint="Install Debian's `mariadb-server`; its service need not run.",
            )
        data = self.folder / "data"
        # --no-defaults first, for both: the machine's own configuration names the machine's own folders.
        self.run_tool(
            [
                str(installer),
                "--no-defaults",
                f"--datadir={data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
            ],
            account,
        )
        first = self.folder / "first.sql"
        first.write_text(
            "FLUSH PRIVILEGES;\n"
            # The installer makes root@127.0.0.1 without a password; the most specific host wins over '%'.
            f"CREATE OR REPLACE USER 'root'@'127.0.0.1' IDENTIFIED BY '{_PASSWORD}';\n"
            "GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
            f"CREATE OR REPLACE USER '{_OWNER}'@'%' IDENTIFIED BY '{_PASSWORD}';\n"
            f"CREATE DATABASE IF NOT EXISTS `{_OWNER}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;\n"
            f"GRANT ALL ON `{_OWNER}`.* TO '{_OWNER}'@'%';\n"
            # By which it sees whether a table that it may not read references one of its own.
            f"GRANT PROCESS ON *.* TO '{_OWNER}'@'%';\n"
        )
        if account.uid is not None and account.gid is not None:
            os.chown(first, account.uid, account.gid)
        self.port = free_port()
        settings = {
            "datadir": str(data),
            "tmpdir": str(self.folder),
            "socket": str(self.folder / "mariadb.sock"),
            "pid-file": str(self.folder / "mariadb.pid"),
            "bind-address": "127.0.0.1",
            "port": str(self.port),
            "init-file": str(first),
            "skip-name-resolve": "ON",
            "skip-log-bin": "ON",
            "innodb-buffer-pool-size": "64M",
            "innodb-flush-log-at-trx-commit": "2",
            "default-time-zone": "+00:00",
        } | self.settings
        return [str(server), "--no-defaults", *(f"--{name}={value}" for name, value in settings.items())], {}

    def _answers(self) -> bool:
        import pymysql

        try:
            self._admin("SELECT 1")
        except pymysql.err.OperationalError:
            return False
        return True

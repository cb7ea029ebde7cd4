"""The row side: reading, holding and deleting rows through SQLAlchemy Core.

``Database`` (engine.py) opens connections, ``SqlRows`` (rows.py) is one declared target on one database, ``SqlProber``
(permissions.py) proves what the role may do. What differs between servers is in ``backends``, one file a server.
"""

from safedelete.sql.engine import Database, Timeouts
from safedelete.sql.fingerprint import definition
from safedelete.sql.permissions import SqlProber
from safedelete.sql.rows import SqlRows

__all__ = ["Database", "SqlProber", "SqlRows", "Timeouts", "definition"]

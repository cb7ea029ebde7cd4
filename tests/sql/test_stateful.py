"""Random schemas, purges, writers and kills, one after the other: nothing goes that was not sealed, and everything is accounted for.

A whole purge runs on a real database with objects in memory. Between any two of its calls a writer may change rows, or the
process may die; the next run finds what is left.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy.pool import NullPool

from safedelete import Guard, Rows, S3Keys, past
from safedelete.core.item import ObjectRef
from safedelete.core.outcome import Outcome, Tally
from safedelete.core.run import RunState
from safedelete.errors import PartialDeleteError, RefusedError, SafeDeleteError
from safedelete.ledger import setup
from safedelete.ledger.store import SqlLedger
from safedelete.locks import lease
from safedelete.locks.lease import LeaseLock
from safedelete.phases.parts import RowPart, quiet
from safedelete.ports import Binding
from safedelete.runner import purge, review
from safedelete.runner.context import PurgeContext, Setting
from safedelete.runner.stop import deadline, nobody
from safedelete.sql import Database, SqlRows
from safedelete.testing.memory import Call, Killed, ManualClock, MemoryObjects, Watch
from tests.backends import GivenDatabase
from safedelete.testing.servers import Postgres
from tests.worlds import batches_of

BUCKET = "acme"
ROWS = 12

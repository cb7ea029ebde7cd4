"""Garbage for whatever reads what it did not write: a refusal with our own words, never a success, never another error.

``SAFEDELETE_FUZZ_EXAMPLES`` asks for more than the few seconds' worth that every run of the suite gets; `make soak` does.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FUZZ = settings(
    max_examples=int(os.environ.get("SAFEDELETE_FUZZ_EXAMPLES", "60")),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

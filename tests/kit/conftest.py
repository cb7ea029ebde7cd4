"""The plugin, also where the package's entry point is not that of this tree."""

from __future__ import annotations

import importlib.metadata

named = {entry.name for entry in importlib.metadata.entry_points(group="pytest11")}

if "safedelete" not in named:
    from safedelete.testing.plugin import purge_lab  # noqa: F401  # a fixture

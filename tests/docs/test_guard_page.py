"""The page on the guard names every constant of its rules, with the value it has."""

from __future__ import annotations

import ast
import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("fixed", "baseline", "volume", "lookahead", "look", "creep")


def said(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value / timedelta(hours=1):g} h"
    return " and ".join(f"{part:g}" for part in value) if isinstance(value, tuple) else f"{value:g}"


def constants(module: str) -> dict[str, str]:
    tree = ast.parse((ROOT / "safedelete" / "core" / f"{module}.py").read_text())
    names = [
        n.target.id for n in tree.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    ]
    loaded = import_module(f"safedelete.core.{module}")
    return {name: said(getattr(loaded, name)) for name in names if not name.startswith("_")}


@pytest.mark.parametrize("module", MODULES)
def test_every_constant_of_the_guard_is_on_its_page_with_its_value(module: str) -> None:
    text = (ROOT / "docs" / "explanation" / "guard.md").read_text()
    rows = re.findall(rf"^\| `([A-Z_]+)` \| {module} \| ([^|]+) \| [^|\s][^|]+ \|$", text, re.MULTILINE)
    assert len(dict(rows)) == len(rows)
    assert dict(rows) == constants(module)

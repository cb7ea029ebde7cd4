"""The shape that makes the promises checkable: who may decide, who may delete, and what the core may know."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import safedelete
import safedelete.errors

PACKAGE = Path(safedelete.__file__).parent
REPOSITORY = Path(__file__).parent.parent
FILES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 400

ADAPTERS = ("sql/", "s3/", "testing/")
CAN_DELETE = {
    "RowTarget",
    "ObjectTarget",
    "ObjectStore",
    "RowTransaction",
    "Transaction",
    "Ledger",
    "Lock",
    "Lease",
    "Prober",
}


def name_of(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), filename=str(file))


def called(tree: ast.AST) -> Iterator[tuple[str, bool, int]]:
    """Every call by its last name, whether it is a method's, and its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.func.id, False, node.lineno
            elif isinstance(node.func, ast.Attribute):
                yield node.func.attr, True, node.lineno


def renamed(tree: ast.AST, names: set[str]) -> Iterator[str]:
    """Imports that give one of these names another name, which would hide a call of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (
                alias.name
                for alias in node.names
                if alias.name in names and alias.asname not in (None, alias.name)
            )


def test_the_package_was_found() -> None:
    assert {"errors.py", "core/guard.py", "ports/stores.py"} <= {name_of(file) for file in FILES}


def test_the_layers_hold() -> None:
    if importlib.util.find_spec("importlinter") is None:
        pytest.skip("import-linter is not installed; `make layers` brings it along.")
    if PACKAGE.parent != REPOSITORY:
        pytest.skip("The contracts are about the source tree, and this is the installed package.")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "home"),
    [("Approved", "core/guard.py"), ("Cleared", "phases/preflight.py")],
    ids=["Approved", "Cleared"],
)
def test_what_lets_a_deletion_pass_is_made_in_one_place(name: str, home: str) -> None:
    makers = set()
    for file in FILES:
        tree = parsed(file)
        assert not list(renamed(tree, {name})), f"{name_of(file)} gives {name} another name"
        if any(call == name for call, _, _ in called(tree)):
            makers.add(name_of(file))
    assert makers == {home}


def test_a_store_deletes_only_where_a_batch_is_executed() -> None:
    found = {
        f"{name_of(file)}:{line}"
        for file in FILES
        if not name_of(file).startswith(ADAPTERS)
        for call, method, line in called(parsed(file))
        if method and call == "delete"
    }
    places = {place.rpartition(":")[0] for place in found}
    assert places == {"phases/execute.py"}, sorted(found)


def test_only_the_object_stores_adapter_speaks_to_s3_about_deleting() -> None:
    found = {
        name_of(file)
        for file in FILES
        for call, method, _ in called(parsed(file))
        if method and call in ("delete_object", "delete_objects")
    }
    assert found
    assert all(name.startswith(("s3/", "testing/")) for name in found), found


def test_the_core_knows_python_and_itself_only() -> None:
    strangers = set()
    for file in FILES:
        if not name_of(file).startswith("core/"):
            continue
        for node in ast.walk(parsed(file)):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name_of(file)}: imports are absolute"
                modules = [node.module or ""]
            for module in modules:
                ours = module.startswith(("safedelete.core", "safedelete.errors"))
                if not ours and module.partition(".")[0] not in sys.stdlib_module_names:
                    strangers.add(f"{name_of(file)} imports {module}")
    assert not strangers


def test_planning_is_given_nothing_that_could_delete() -> None:
    tree = parsed(PACKAGE / "phases" / "plan.py")
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    named |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    named |= {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert named & {"RowReader", "ObjectReader"}
    assert not named & CAN_DELETE
    assert not {call for call, _, _ in called(tree)} & {"delete", "begin", "settle", "seal", "move"}


def test_no_file_is_longer_than_one_idea() -> None:
    long = {
        name_of(file): count for file in FILES if (count := len(file.read_text().splitlines())) > MOST_LINES
    }
    assert not long


def test_no_error_is_swallowed_unseen() -> None:
    swallowed = {
        f"{name_of(file)}:{node.lineno}"
        for file in FILES
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
        )
        and all(isinstance(statement, ast.Pass) for statement in node.body)
    }
    assert not swallowed


def test_every_error_says_what_to_do_next() -> None:
    ours = {
        name
        for name, found in vars(safedelete.errors).items()
        if isinstance(found, type) and issubclass(found, safedelete.errors.SafeDeleteError)
    }
    silent = [
        f"{name_of(file)}:{node.lineno}"
        for file in FILES
        # Its stores say what the real ones say, to a test's author.
        if not name_of(file).startswith("testing/memory/")
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ours
        if not any(keyword.arg in ("hint", None) for keyword in node.keywords)
    ]
    assert silent == []

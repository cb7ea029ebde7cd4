"""Break the guard's rules one at a time, and see whether a test notices.

    python -m tests.bench.mutants [guard look fixed lookahead volume baseline creep]

Each mutant changes one comparison, operator, constant or condition of one module, or drops one operand of an ``and`` or
``or``, in a forked process that runs the guard's tests (without the properties, which are slow and would hide what the
tables miss) until the first failure. Prints the survivors with their lines. Run by hand; the survivors are explained in
docs/explanation/guard.md.

Left alone is what says nothing about a decision: type hints, what a message prints as it is, and the flags in ``SAFE``.
"""

from __future__ import annotations

import ast
import copy
import importlib.abc
import importlib.util
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MODULES = ("guard", "look", "fixed", "lookahead", "volume", "baseline", "creep")
TESTS = [
    f"tests/unit/core/test_guard_{n}.py"
    for n in (
        "teaching",
        "volume_exact",
        "exact",
        "look",
        "measure",
        "fixed",
        "lookahead",
        "volume",
        "approval",
        "accidents",
        "say",
    )
]
OPTIONS = ["-qq", "--noconftest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--assert=plain"]
"""The guard's tests are pure: conftest.py, which knows every server, would take most of the time. Assertions are plain
because pytest would rewrite them in the package as well, which brings a plugin, and so load it past the mutant."""

SAFE = {"frozen", "slots", "strict", "kw_only"}
"""Flags that guard against a programmer's slip and never change a number: whether a dataclass is immutable and has
slots, and whether zip() checks that two lists made one from the other are equally long."""
SECONDS = 60
COMPARE = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
BINARY = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.Pow: ast.Mult,
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield each way to break one node, in words and as the new node."""
    new = copy.deepcopy(node)
    match node:
        case ast.Compare() if type(node.ops[0]) in COMPARE:
            new.ops[0] = COMPARE[type(node.ops[0])]()
            yield f"{type(node.ops[0]).__name__} -> {type(new.ops[0]).__name__}", new
        case ast.BinOp() if type(node.op) in BINARY:
            new.op = BINARY[type(node.op)]()
            yield f"{type(node.op).__name__} -> {type(new.op).__name__}", new
        case ast.BoolOp():
            new.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield f"{type(node.op).__name__} -> {type(new.op).__name__}", new
            for place, dropped in enumerate(node.values):
                rest = [value for value in node.values if value is not dropped]
                left = ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0]
                yield f"{ast.unparse(dropped)!r} dropped, operand {place + 1}", copy.deepcopy(left)
        case ast.UnaryOp() if isinstance(node.op, ast.Not):
            yield "not dropped", new.operand
        case ast.IfExp():
            yield "if-else swapped", ast.IfExp(new.test, new.orelse, new.body)
        case ast.Call(func=ast.Name(id=("max" | "min") as name)):
            new.func.id = "min" if name == "max" else "max"
            yield f"{name} -> {new.func.id}", new
        case ast.Constant() if isinstance(node.value, bool):
            yield f"{node.value} -> {not node.value}", ast.Constant(not node.value)
        case ast.Constant() if isinstance(node.value, (int, float)):
            yield f"{node.value} -> {node.value + 1}", ast.Constant(node.value + 1)


def mutants(source: str) -> Iterator[tuple[int, str, ast.Module]]:
    """Yield (line, what, tree) for every mutant of a module."""
    tree = ast.parse(source)
    places = [
        (parent, field, i)
        for parent in ast.walk(tree)
        for field, value in ast.iter_fields(parent)
        for i in (range(len(value)) if isinstance(value, list) else [None])
        if isinstance(value[i] if i is not None else value, ast.AST)
    ]
    notes = [a.annotation for a in ast.walk(tree) if isinstance(a, ast.arg | ast.AnnAssign) and a.annotation]
    notes += [f.returns for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.returns]
    notes += [k for k in ast.walk(tree) if isinstance(k, ast.keyword) and k.arg in SAFE]
    quiet = {id(n) for note in notes for n in ast.walk(note)}
    for parent, field, i in places:
        holder = getattr(parent, field)
        node = holder[i] if i is not None else holder
        if id(node) in quiet or isinstance(parent, ast.JoinedStr | ast.FormattedValue):
            continue
        for what, new in changes(node):
            put(parent, field, i, ast.copy_location(new, node))
            yield node.lineno, what, ast.fix_missing_locations(copy.deepcopy(tree))
            put(parent, field, i, node)


def put(parent: ast.AST, field: str, i: int | None, node: ast.AST) -> None:
    if i is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[i] = node


class Broken(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a mutant's tree."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name, self.tree = name, tree

    def find_spec(self, name: str, path: object, target: object = None) -> object:
        return importlib.util.spec_from_loader(name, self) if name == self.name else None

    def exec_module(self, module: object) -> None:
        exec(compile(self.tree, self.name, "exec"), module.__dict__)


def warm_up() -> None:
    """Load what the tests load from elsewhere, once, and forget what may be broken."""
    pytest.main(["--collect-only", *OPTIONS, *TESTS])
    for name in [n for n in sys.modules if n.partition(".")[0] in ("safedelete", "tests")]:
        del sys.modules[name]


def survives(name: str, tree: ast.Module | None) -> bool:
    """Run the tests on a mutant, or on the unbroken code, in a forked process."""
    child = os.fork()
    if child == 0:
        # Processor time, not the clock's: on a busy machine a slow run must not pass for a caught mutant.
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if tree is not None:
            sys.meta_path.insert(0, Broken(name, tree))
        os._exit(int(pytest.main(["-x", *OPTIONS, *TESTS])))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def main() -> None:
    """Break each module given, or all."""
    warm_up()
    if not survives("", None):
        sys.exit("The tests fail on the unbroken code: every mutant would pass for caught.")
    if survives("safedelete.core.guard", ast.parse("raise ImportError")):
        sys.exit("The tests pass on a guard that cannot be loaded: no mutant would be caught.")
    for module in sys.argv[1:] or MODULES:
        source = Path(f"safedelete/core/{module}.py").read_text(encoding="utf-8")
        lines = source.splitlines()
        tried = 0
        left = []
        for line, what, tree in mutants(source):
            tried += 1
            if survives(f"safedelete.core.{module}", tree):
                left.append((line, what))
                print(f"  survived {module}.py:{line} {what}: {lines[line - 1].strip()}", flush=True)
        print(f"{module}.py: {tried} mutants, {tried - len(left)} killed, {len(left)} survived", flush=True)


if __name__ == "__main__":
    main()

"""Which patches there are, what each breaks, and how one is applied."""

from __future__ import annotations

import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One way to break the code.

    Attributes:
        name: Its patch's name, without the ending.
        breaks: What it does wrong, in a sentence.
        tests: The files, or single tests of slow files, that have to notice; as pytest is given them, from the root.
        promise: Number of the promise that it breaks; None where it breaks a rule beside them.
        rule: That rule.
    """

    name: str
    breaks: str
    tests: list[str]
    promise: int | None = None
    rule: str = ""

    @property
    def patch(self) -> Path:
        """Where it is."""
        return HERE / f"{self.name}.patch"

    def apply(self, root: Path, *options: str) -> str:
        """Apply it to the tree below a folder with ``git apply``; return what git objects to, or nothing."""
        # A folder inside a repository would make git leave out whatever lies outside of that folder.
        done = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", *options, str(self.patch)],
            check=False,
            cwd=root,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(root.parent)},
            capture_output=True,
            text=True,
        )
        return done.stderr.strip() if done.returncode else ""


def mutants() -> list[Mutant]:
    """Return every mutant of the manifest, in its order."""
    sections = tomllib.loads((HERE / "manifest.toml").read_text(encoding="utf-8"))
    return [Mutant(name=name, **section) for name, section in sections.items()]

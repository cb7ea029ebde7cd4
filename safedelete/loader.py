"""Import a job file and collect the jobs it declares.

A job file is code: it runs with the caller's rights. While it loads, opening a database connection is refused with
the line that did it, since whatever a file does at import time it would do on every ``--help`` of a host and at every boot.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from safedelete.declare import Declared, Job, Purge
from safedelete.declare.sweeps import check_sweeps
from safedelete.errors import ConfigError, SafeDeleteError
from safedelete.sql.boot import refusing_connections
from safedelete.sql.engine import environment_url


@dataclass(frozen=True, slots=True)
class JobFile:
    """A loaded job file.

    Attributes:
        path: Where it is.
        jobs: The jobs in it by name, in the order of declaration.
    """

    path: Path
    jobs: dict[str, Declared]

    def pick(self, names: Iterable[str]) -> list[Declared]:
        """Return the jobs of these names, or all when there are none.

        Raises:
            ConfigError: A name is unknown; says which there are.
        """
        wanted = list(names) or list(self.jobs)
        for name in wanted:
            if name not in self.jobs:
                raise ConfigError(
                    f"{self.path}: there is no job named {name!r}.",
                    hint=f"It declares: {', '.join(self.jobs)}.",
                )
        return [self.jobs[name] for name in wanted]

    def one(self, name: str | None) -> Declared:
        """Return the job of this name, or the only one.

        Raises:
            ConfigError: The name is unknown, or missing while there are several.
        """
        if name is None and len(self.jobs) > 1:
            raise ConfigError(
                f"{self.path} declares {len(self.jobs)} jobs: name the one to run.",
                hint=f"One of: {', '.join(self.jobs)}.",
            )
        return self.pick([name] if name else [])[0]


def load(path: Path) -> JobFile:
    """Import a job file.

    Args:
        path: The file. Its own folder is importable, as for a script; first while it loads, last afterwards.

    Returns:
        The jobs it declares at module level, also those in lists and tuples there.

    Raises:
        ConfigError: The file does not exist, does not parse, raises, opens a connection, declares no job, or two jobs of
            one name. Nothing was deleted.
    """
    if not path.is_file():
        raise ConfigError(
            f"There is no job file {path}.", hint="Name a Python file that declares a Purge or a @job."
        )
    module = _import(path.resolve())
    jobs: dict[str, Declared] = {}
    for declared in _declared(module):
        if declared.name in jobs and jobs[declared.name] is not declared:
            raise ConfigError(
                f"{path}: two jobs are named {declared.name!r}.",
                hint="The lock, the baseline and the deployed resources go by the name; give each its own.",
            )
        jobs[declared.name] = declared
    if not jobs:
        raise ConfigError(
            f"{path}: the file declares no job.", hint="Declare a Purge(...) or a @job(...) at module level."
        )
    purges = [job for job in jobs.values() if isinstance(job, Purge)]
    try:
        check_sweeps(purges, environment_url())
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", hint=error.hint) from error
    for purge in purges:
        purge.beside = tuple(other for other in purges if other is not purge)
    return JobFile(path, jobs)


def _declared(module: ModuleType) -> Iterator[Declared]:
    for value in vars(module).values():
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, (Purge, Job)):
                yield item


class _AsWritten(SourceFileLoader):
    """Compiles the file each time.

    Python takes a compilation that it has kept for as long as the file's size and the second of its last change stay:
    ``days=90`` that became ``days=10`` in an image whose files all bear one date would still purge by the old one.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _import(path: Path) -> ModuleType:
    name = f"safedelete_jobs_{path.stem}"
    spec = None
    if path.suffix == ".py":
        spec = importlib.util.spec_from_file_location(name, path, loader=_AsWritten(name, str(path)))
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: not a Python file.", hint="A job file ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    sys.modules[name] = module
    try:
        with refusing_connections(path):
            spec.loader.exec_module(module)
    except SafeDeleteError as error:
        line = _line(error, path)
        raise type(error)(f"{path}{line}: {error}", hint=error.hint) from error
    except SyntaxError as error:
        where = f"{error.filename or path}:{error.lineno or '?'}"
        raise ConfigError(f"{where}: {error.msg}.", hint="The job file does not parse as Python.") from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        line = _line(error, path)
        raise ConfigError(
            f"{path}{line}: {type(error).__name__} while the job file was loaded: {error}.",
            hint="Run `python " + path.name + "` to see the whole traceback.",
        ) from error
    finally:
        # A function may import a neighbour when it is called; what is installed comes first from here on.
        sys.path.remove(str(path.parent))
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
        sys.modules.pop(name, None)
    return module


def _line(error: BaseException, path: Path) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{frames[-1].lineno}" if frames else ""

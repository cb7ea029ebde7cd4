"""Documents as YAML that people read and compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safedelete.deploy.files import MARK
from safedelete.errors import ConfigError


def as_yaml(document: Mapping[str, Any], *, width: int) -> str:
    """Return a rendered file's text. What comes twice is written twice: a reader, and a difference, look for it at its place.

    Args:
        document: What the file holds.
        width: Letters after which a line is folded.

    Raises:
        ConfigError: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise ConfigError(
            "Rendering YAML needs PyYAML, which is not installed.",
            hint='Install it with: pip install "safedelete-purge[deploy]"',
        ) from error

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, _data: Any) -> bool:
            return True

    text = yaml.dump(document, Dumper=Dumper, sort_keys=False, width=width, allow_unicode=True)
    return f"# {MARK} from the job file and safedelete.toml; change those.\n{text}"

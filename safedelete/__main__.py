"""``python -m safedelete``."""

from safedelete.cli import command

command()

"""``python -m safedelete``."""

from safedelete.cli import main

main()

"""Entry point."""

from __future__ import annotations

import sys
from typing import NoReturn

from magic_committer.cli.running import run

__all__ = ["main", "run"]


def main() -> NoReturn:
    """Run the command line of this process, and exit with its code."""
    sys.exit(run(sys.argv[1:]))

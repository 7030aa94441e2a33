"""Entry point: all groups of commands."""

from __future__ import annotations

import sys
from typing import NoReturn

from magic_committer.cli import (
    cleanup,
    completion,
    demo,
    doctor,
    inspecting,
    jobs,
    lifecycle,
    report,
    uploads,
)
from magic_committer.cli.running import run

__all__ = ["main", "run"]

GROUPS = (cleanup, completion, demo, doctor, inspecting, jobs, lifecycle, report, uploads)
"""The modules that add their commands to the root when they are imported."""


def main() -> NoReturn:
    """Run the command line of this process, and exit with its code."""
    sys.exit(run(sys.argv[1:]))

"""``job list|show|commit|abort|recover``: the jobs under a destination, and how they end."""

from __future__ import annotations

from typing import Any

import click

from magic_committer.cli.app import group
from magic_committer.cli.output import Column
from magic_committer.cli.quantities import age_words, bytes_words
from magic_committer.cli.shell import DIRECTORY, DURATION, Shell, command
from magic_committer.paths import Destination
from magic_committer.recovery.look import inspect_all
from magic_committer.recovery.values import DEAD_SECONDS, FoundJob

job = group("job", "Jobs under a destination: look at them, finish them, undo them.")

FIELDS = tuple(FoundJob.__dataclass_fields__)
COLUMNS = (
    Column("id", "job"),
    Column("kind"),
    Column("state"),
    Column("age", words=age_words, right=True),
    Column("files", right=True),
    Column("bytes", words=bytes_words, right=True),
    Column("would", "recovery would"),
)


@command(job, "list")
@click.argument("path", type=DIRECTORY)
@click.option(
    "--dead-after", type=DURATION, default=DEAD_SECONDS, metavar="AGE", show_default="24h",
    help="From which age a running job of which nothing changes is taken for dead.",
)  # fmt: skip
def list_jobs(shell: Shell, path: Destination, dead_after: float) -> None:
    """List the jobs that have a directory under PATH: ours and Hadoop's."""
    counts: dict[str, int] = {}

    def rows() -> Any:
        for found in inspect_all(shell.runtime(path.bucket), path, dead_after):
            counts[found.kind] = counts.get(found.kind, 0) + 1
            yield found.to_dict()

    shell.output.rows(
        "job", COLUMNS, rows(), fields=FIELDS,
        summary=lambda: {"jobs": sum(counts.values()), "by_kind": counts},
        empty=f"No jobs under {path.url}",
    )  # fmt: skip

"""The root of all commands."""

from __future__ import annotations

import click

from magic_committer.version import __version__


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="A path is a directory: s3://bucket/table never means table2.",
)
@click.version_option(__version__, prog_name="magic-committer")
def root() -> None:
    """Pending uploads and broken jobs on S3: find them, finish them, remove them."""


def group(name: str, help: str) -> click.Group:
    """A group of commands under the root."""
    made = click.Group(name, help=help)
    root.add_command(made)
    return made

"""The root of all commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from magic_committer.cli.output import FORMATS
from magic_committer.version import __version__

F = TypeVar("F", bound=Callable[..., Any])


def common(function: F) -> F:
    """The options that every command has. They may also be given before it: what is given after it
    wins."""
    for option in reversed(
        (
            click.option(
                "--format", "how", type=click.Choice(FORMATS), show_default="table",
                help="For people, or for programs (docs/cli.md has the schema).",
            ),
            click.option("--json", "as_json", is_flag=True, help="Short for --format json."),
            click.option("--profile", help="AWS profile.", metavar="NAME"),
            click.option("--region", help="AWS region.", metavar="NAME"),
            click.option(
                "--endpoint-url", "--endpoint", "endpoint_url", metavar="URL",
                help="Of a store that is not AWS's.",
            ),
            click.option("--quiet", "-q", is_flag=True, help="No progress, no notes."),
            click.option("--debug", is_flag=True, help="Show tracebacks and the library's log."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


COMMON = ("how", "as_json", "profile", "region", "endpoint_url", "quiet", "debug")
"""The names of these options' values."""


def given_so_far(context: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """The values of the common options, with those that were given before, on the way to this
    command."""
    if values["as_json"]:
        if values["how"] not in (None, "json"):
            raise click.UsageError("--json and --format say different things: give one", context)
        values["how"] = "json"
    before: dict[str, Any] = context.obj or {}
    return {name: values[name] or before.get(name) for name in COMMON}


def _keep(**values: Any) -> None:
    context = click.get_current_context()
    context.obj = given_so_far(context, values)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="A path is a directory: s3://bucket/table never means table2.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, given: _tell_version(context) if given else None,
    help="Show the version and exit.",
)
@common
def root(**values: Any) -> None:
    """Pending uploads and broken jobs on S3: find them, finish them, remove them."""
    _keep(**values)


def _tell_version(context: click.Context) -> None:
    from magic_committer._wiring import sends_by  # it loads the HTTP library

    click.echo(f"magic-committer, version {__version__}\nrequests by {sends_by()}")
    context.exit()


def group(name: str, help: str) -> click.Group:
    """A group of commands under the root."""

    @root.group(name, help=help)
    @common
    def made(**values: Any) -> None:
        _keep(**values)

    return made

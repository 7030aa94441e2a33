"""The root of all commands.

A command is loaded when it is called, or when its own help is shown: until then
the root has a `Later` in its place, with its name and its one line. So ``--help`` costs neither
boto3 nor the commands.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Literal, TypeVar, get_args

import click

from magic_committer import __version__

F = TypeVar("F", bound=Callable[..., Any])

Format = Literal["table", "json", "jsonl", "csv", "prometheus"]
FORMATS: tuple[str, ...] = tuple(how for how in get_args(Format) if how != "prometheus")
"""What every command prints; ``prometheus`` is for `cleanup`."""


def clean(text: object) -> str:
    """Text that does nothing to a terminal: control and format characters are escaped."""
    told = str(text)
    if told.isprintable():  # nearly always
        return told
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in told)


def note(line: str) -> None:
    """A line for people beside the results: to stderr, in every format."""
    with suppress(OSError):  # it is full, say: what was done is no less done
        sys.stderr.write(f"{clean(line)}\n")
        sys.stderr.flush()


def options(*given: Callable[[Any], Any]) -> Callable[[F], F]:
    """Several options as one decorator, in the order of the help."""

    def decorate(function: F) -> F:
        for option in reversed(given):
            function = option(function)
        return function

    return decorate


common = options(
    click.option(
        "--format", "how", type=click.Choice(get_args(Format)),
        help="A table for people (default); the others for programs, see docs/cli.md.",
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
)  # fmt: skip
"""The options that every command has. They may also be given before it: what is given after it
wins."""
COMMON = ("how", "as_json", "profile", "region", "endpoint_url", "quiet", "debug")
"""The names of these options' values."""


class Explained(click.Command):
    """A command whose help ends with the options that all commands have. ``examples``: command
    lines without the program's name."""

    examples: tuple[str, ...] = ()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, its examples, and the options of every command."""
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)
        self._section("Options", False, ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"  magic-committer {line}\n")
        self.format_shared(ctx, formatter)

    def format_shared(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what every command has."""
        self._section("Options of every command", True, ctx, formatter)

    def _section(
        self, title: str, shared: bool, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        params = [p for p in options if (p.name in COMMON or "--help" in p.opts) == shared]
        if records := [told for p in params if (told := p.get_help_record(ctx))]:
            with formatter.section(title):
                formatter.write_dl(records)


class Group(Explained, click.Group):
    """A group, whose help ends with the options that all commands have."""


class Later(click.Command):
    """Stands for a command that is not loaded yet: in lists, in completions, in "did you mean"."""

    def __init__(self, name: str, module: str, **words: str) -> None:
        """``module``: of `magic_committer.cli`; importing it puts the command in this one's place.
        ``words``: ``help`` of a group, or ``short_help`` of a command."""
        super().__init__(name, **words)  # type: ignore[arg-type]
        self.module = module

    def load(self) -> None:
        """Put the command in this one's place."""
        import_module(f"magic_committer.cli.{self.module}")


LATER = (
    Later("cleanup", "cleanup", short_help="From cron: take away what dead jobs left."),
    Later("doctor", "doctor", short_help="Try permissions and store; print IAM policies."),
    Later("inspect", "inspecting", short_help="Print and check a committer's file."),
    Later("job", "jobs", help="Jobs: look at them, finish them, undo them."),
    Later(
        "lifecycle", "lifecycle", help="A bucket's rule that aborts uploads which nobody completed."
    ),
    Later("promote", "put", short_help="Publish objects of another prefix: all of them, or none."),
    Later("put", "put", short_help="Publish a directory of this machine: all files, or none."),
    Later("report", "report", short_help="One page for people: uploads, jobs."),
    Later(
        "uploads", "uploads", help="Open uploads under a path: whose they are, how old, how large."
    ),
)
"""The commands and groups of the root, and their modules."""
WORDS = {one.name: one.help or one.short_help or "" for one in LATER}
"""What each is for, in one line."""


class Root(Group):
    """Loads a command when it is resolved."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, Later):
            command.load()
            return super().resolve_command(ctx, args)
        return name, command, rest


def load_all() -> None:
    """Load every command."""
    for one in LATER:
        one.load()


@click.group(
    cls=Root,
    commands=LATER,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="A path is a directory: s3://bucket/table never means table2.",
)
@click.version_option(__version__, message="%(prog)s, version %(version)s")
@common
def root(**_: Any) -> None:
    """Pending uploads and broken jobs on S3: find them, finish them, remove them."""


root.examples = (
    "uploads list s3://bucket/table",
    "uploads abort s3://bucket/table --foreign --older-than 7d",
    "job list s3://bucket/table",
)


def group(name: str, *examples: str) -> Group:
    """A group of commands under the root, one of `LATER`; the examples are for its help."""

    @root.group(name, cls=Group, help=WORDS[name])
    @common
    def made(**_: Any) -> None:
        pass  # a command looks at what was given before it

    assert isinstance(made, Group)  # click's types do not say so
    made.examples = examples
    return made

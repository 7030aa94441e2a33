"""Writes docs/cli-reference.md, the help of every command: ``python -m tests.cli.reference``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from magic_committer.cli import exits
from magic_committer.cli.app import Explained, load_all, root

FILE = Path(__file__).resolve().parents[2] / "docs" / "cli-reference.md"
WIDTH = 100

load_all()


def commands(
    command: click.Command = root, above: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command that does something, with the words that name it."""
    name = "magic-committer" if above is None else command.name
    context = click.Context(
        command,
        info_name=name,
        parent=above,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=root.context_settings["help_option_names"],
    )
    if not isinstance(command, click.Group):
        yield context.command_path, command, context
        return
    for child in sorted(command.commands):
        yield from commands(command.commands[child], context)


def _help(command: click.Command, context: click.Context, shared: bool) -> str:
    assert isinstance(command, Explained)
    formatter = context.make_formatter()
    if shared:
        command.format_shared(context, formatter)
    else:
        command.format_usage(context, formatter)
        command.format_help_text(context, formatter)
        command.format_own(context, formatter)
    return formatter.getvalue().strip("\n")


def text() -> str:
    """The whole file."""
    listed = list(commands())
    parts = [
        "# Commands",
        "What `magic-committer COMMAND --help` says, all in one place. Written by\n"
        "`python -m tests.cli.reference`; [cli.md](cli.md) tells what they are for.",
    ]
    _, some, context = next(one for one in listed if "how" in {p.name for p in one[1].params})
    parts += [
        "Options of every command, before its name or after it:",
        f"```\n{_help(some, context, shared=True)}\n```",
    ]
    rows = "\n".join(f"| {code} | {meaning} |" for code, meaning in exits.MEANINGS.items())
    parts += ["## Exit codes", f"| code | meaning |\n|---|---|\n{rows}"]
    for path, command, context in listed:
        parts += [f"## {path}", f"```\n{_help(command, context, shared=False)}\n```"]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")

"""Writes docs/cli-reference.md, the help of every command: ``python -m tests.cli.reference``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from magic_committer.cli import exits
from magic_committer.cli.app import COMMON, Explained, load_all, root

FILE = Path(__file__).resolve().parents[2] / "docs" / "cli-reference.md"
WIDTH = 100

load_all()


def commands(
    command: click.Command = root, above: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command that does something, with the words that name it."""
    name = "magic-committer" if above is None else command.name
    context = click.Context(
        command, info_name=name, parent=above, terminal_width=WIDTH, max_content_width=WIDTH,
        help_option_names=root.context_settings["help_option_names"],
    )  # fmt: skip
    if not isinstance(command, click.Group):
        yield context.command_path, command, context
        return
    for child in sorted(command.commands):
        yield from commands(command.commands[child], context)


Record = tuple[str, str]


def _options(command: click.Command, context: click.Context) -> list[Record]:
    """What the help says of each option that is not of every command."""
    mine = [p for p in command.params if isinstance(p, click.Option) and p.name not in COMMON]
    return [told for one in mine if (told := one.get_help_record(context))]


def _help(command: click.Command, context: click.Context, several: set[Record]) -> str:
    """A command's own help; options that stand above are named only. Without its examples."""
    assert isinstance(command, Explained)
    formatter = context.make_formatter()
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    told = _options(command, context)
    if own := [one for one in told if one not in several]:
        with formatter.section("Options"):
            formatter.write_dl(own)
    if above := ", ".join(name for name, words in told if (name, words) in several):
        formatter.write_paragraph()
        formatter.write_text(f"And, as above: {above}")
    return formatter.getvalue().strip("\n")


def text() -> str:
    listed = list(commands())
    parts = [
        "# Commands",
        "What `magic-committer COMMAND --help` says, but for its examples; an option of\n"
        "several commands stands above them. Written by `python -m tests.cli.reference`;\n"
        "[cli.md](cli.md) shows the tasks.",
    ]
    _, some, context = next(one for one in listed if "how" in {p.name for p in one[1].params})
    assert isinstance(some, Explained)
    formatter = context.make_formatter()
    some.format_shared(context, formatter)
    counted = Counter(record for _, one, where in listed for record in _options(one, where))
    often = [record for record, times in counted.items() if times >= 2]
    meanings = Counter(name for name, _ in often)
    several = {record for record in often if meanings[record[0]] == 1}
    with formatter.section("Options of several commands"):
        formatter.write_dl(sorted(several))
    parts += ["## Options", f"```\n{formatter.getvalue().strip()}\n```"]
    rows = "\n".join(f"| {code} | {meaning} |" for code, meaning in exits.MEANINGS.items())
    parts += ["## Exit codes", f"| code | meaning |\n|---|---|\n{rows}"]
    for path, command, context in listed:
        parts += [f"## {path}", f"```\n{_help(command, context, several)}\n```"]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")

"""``completion bash|zsh|fish``: the script by which a shell completes our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from magic_committer.cli.app import WORDS, root

PROGRAM = "magic-committer"
VARIABLE = "_MAGIC_COMMITTER_COMPLETE"
"""What the script sets when it asks us; click's own name for a program of ours."""


@root.command("completion", short_help=WORDS["completion"])
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the completion script of a SHELL.

    For bash: eval "$(magic-committer completion bash)" in ~/.bashrc; zsh is alike. For fish:
    magic-committer completion fish > ~/.config/fish/completions/magic-committer.fish
    """
    made = get_completion_class(shell)
    assert made is not None  # click has those three
    click.echo(made(root, {}, PROGRAM, VARIABLE).source())

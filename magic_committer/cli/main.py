"""Entry point: one command line, run, and what becomes an exit code.

No traceback without ``--debug``: not for an error of ours that a command did not translate, nor for
one that nobody expected; that one is shown with its kind, and with how to see all of it.
"""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

import click

from magic_committer.cli import exits
from magic_committer.cli.app import note, root


def main() -> NoReturn:
    """Run the command line of this process, and exit with its code. A standard stream that is
    closed leads nowhere; a letter that stdout does not have is escaped."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the process ends)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command line; its exit code."""
    try:
        code = root.main(arguments, prog_name="magic-committer", standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt) as interrupt:
        note("magic-committer: interrupted")
        cause = interrupt.__cause__ or interrupt  # click hands on its own error
        for told in getattr(cause, "__notes__", ()):
            note(f"magic-committer: {told}")
        return exits.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception as error:
        if "--debug" in arguments:
            sys.excepthook(type(error), error, error.__traceback__)
        note(f"magic-committer: {type(error).__name__}: {error}. --debug shows where")
        return exits.FAILED
    return code if isinstance(code, int) else exits.OK

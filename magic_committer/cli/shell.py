"""What all commands share: the options for store and output, errors as exit codes, questions.

`command` makes a click command out of a function whose first argument is a `Shell`.
"""

from __future__ import annotations

import functools
import logging
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import click

from magic_committer import _wiring
from magic_committer._modes import mode_of
from magic_committer._quantities import duration
from magic_committer._runtime import ProgressFunction, Runtime, no_progress
from magic_committer.cli import exits
from magic_committer.cli.app import COMMON, Explained, common, given_so_far
from magic_committer.cli.output import Output
from magic_committer.cli.places import on_s3, place
from magic_committer.cli.plain import Format, note
from magic_committer.cli.progress import hide_progress, shown_progress
from magic_committer.cli.quantities import parse_duration
from magic_committer.cli.table import wrapped
from magic_committer.cli.wording import commands, told
from magic_committer.errors import MagicError, OptionError, PathError
from magic_committer.hadoop.paths import Destination
from magic_committer.options import S3Options
from magic_committer.remedy import reword_notes

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shell:
    """How this call of a command was asked to reach stores and to print."""

    s3: S3Options
    output: Output
    quiet: bool
    debug: bool

    def runtime(self, bucket: str, progress: ProgressFunction = no_progress) -> Runtime:
        """The components for a bucket."""
        return _wiring.runtime_for(bucket, self.s3, progress)

    def buckets(self) -> list[str]:
        """All buckets of the account."""
        return _wiring.buckets(self.s3)

    def progress(self) -> AbstractContextManager[ProgressFunction]:
        """Bars for the library's ``progress=``, where there is a terminal."""
        return shown_progress(self.quiet)

    def gather(self, rows: Callable[[ProgressFunction], Iterable[T]]) -> Iterable[T]:
        """Rows that take a while to find: all of them, found while bars are shown, where the format
        prints them at once; else as they are found, without bars."""
        if self.output.format in ("table", "json"):
            with self.progress() as progress:
                return list(rows(progress))
        return rows(no_progress)

    def note(self, line: str) -> None:
        """A line to stderr, unless ``--quiet``."""
        if not self.quiet:
            note(line)

    def advise(self, advice: tuple[str, str] | None) -> None:
        """The same of a sentence and the command that does it, which has a line of its own."""
        if advice is None:
            return
        words, command = advice
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
        for line in (*wrapped("", words, width), f"  {command}"):
            self.note(line)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on only if the user says yes, here or by ``--yes``.

        Raises:
            click.UsageError: there is nobody to ask.
            click.Abort: the answer is another.
        """
        if yes:
            return
        if not sys.stdin.isatty():
            raise click.UsageError("there is no terminal to ask on: give --yes, or --dry-run")
        hide_progress()
        click.confirm(question, abort=True, err=True)


# Values of arguments ------------------------------------------------------------------------------


class _Value(click.ParamType):  # type: ignore[type-arg]  # generic in new releases only
    """An argument that one of our own functions reads."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except (OptionError, PathError) as error:
            raise click.BadParameter(str(error), ctx, param) from error


def _checked_mode(text: str) -> str:
    mode_of(text)
    return text


DIRECTORY = _Value("s3 path", lambda text: Destination.parse(on_s3(text)))
"""``s3://bucket/path``, ``s3a://…`` or ``bucket/path``: a directory; ``dataset1`` never means
``dataset10``."""
URL = _Value("s3 url", on_s3)
"""The same, not read yet."""
PLACE = _Value("path", place)
"""The same as `DIRECTORY`, or ``file:///path``: where jobs may be."""
MODE = _Value("mode", _checked_mode)
"""A word for a mode, this library's or Spark's, as it was given."""
DURATION = _Value("duration", parse_duration)
"""Seconds, of ``36h``, ``2d``, ``90m``."""


# Commands -----------------------------------------------------------------------------------------


def age_option(names: str, seconds: float, help: str) -> Callable[[F], F]:
    """Return an option that takes an age; ``names`` as click has them, its default in seconds."""
    return click.option(
        *names.split(), type=DURATION, metavar="AGE", default=duration(seconds), show_default=True,
        help=help,
    )  # fmt: skip


def command(
    group: click.Group, name: str, short: str, *examples: str
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a function a command of a group; ``short`` stands beside its name in lists, the examples
    in its help, after the words that name it.

    Its first argument is a `Shell`, the others are its click options. It returns an exit code, or
    None for 0. Errors of the library end it with a sentence and their code.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
        @functools.wraps(function)
        def run(**given: Any) -> None:
            context = click.get_current_context()
            shared = given_so_far(context, {name: given.pop(name) for name in COMMON})
            how = cast(Format, shared["how"] or "table")
            quiet, debug = bool(shared["quiet"]), bool(shared["debug"])
            way = {name: shared[name] for name in ("profile", "region", "endpoint_url")}
            if debug:
                # Our own log only: the SDK's has signatures and session tokens in it.
                logging.basicConfig(level=logging.WARNING)
                logging.getLogger("magic_committer").setLevel(logging.DEBUG)
            s3 = S3Options()
            try:
                s3 = S3Options(**way)
                shell = Shell(s3, Output(how), quiet, debug)
                code = function(shell, **given)
            except MagicError as error:
                if debug:
                    traceback.print_exc()
                note(f"magic-committer: {told(error, s3)}")
                code = exits.code_of(error)
            except BaseException as interrupt:
                reword_notes(interrupt, commands(s3))
                raise
            sys.stdout.flush()
            if code:
                raise click.exceptions.Exit(code)

        made = group.command(name, cls=Explained, short_help=short)(common(run))
        assert isinstance(made, Explained)  # click's types do not say so of a method
        words = name if group.name == "root" else f"{group.name} {name}"
        made.examples = tuple(f"{words} {example}" for example in examples)
        return made

    return decorate

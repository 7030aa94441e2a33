"""What all commands share: the way to the store, output, errors as exit codes, questions, and the
paths that they look at.

`command` makes a click command out of a function whose first argument is a `Shell`.
"""

from __future__ import annotations

import functools
import logging
import shlex
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import click

from magic_committer.cli import exits
from magic_committer.cli.app import COMMON, Explained, Format, common, note
from magic_committer.cli.output import BARS, PIPE_COLUMNS, Output, wrapped
from magic_committer.errors import CommitIncomplete, MagicError, StoreError
from magic_committer.errors.messages import Remedy, as_command, reword_notes, sentence
from magic_committer.hadoop.paths import Destination
from magic_committer.maintenance.inspect import has_deeper, jobs_below
from magic_committer.options import S3Options, S3Place
from magic_committer.runtime import wiring
from magic_committer.runtime.components import Progress, ProgressFunction, Runtime, no_progress
from magic_committer.runtime.threads import patient


@dataclass(frozen=True, slots=True)
class Shell:
    """How this call of a command was asked to reach stores and to print. ``progress``: bars for the
    library's ``progress=``, where there is a terminal."""

    s3: S3Options
    output: Output
    quiet: bool
    debug: bool
    progress: ProgressFunction

    def runtime(self, bucket: str) -> Runtime:
        """The components for a bucket."""
        return wiring.runtime_for(bucket, self.s3, self.progress)

    def note(self, line: str) -> None:
        """A line to stderr, unless ``--quiet``."""
        if not self.quiet:
            note(line)

    def line(self, *words: str) -> str:
        """A command that reaches the same store, to be pasted."""
        return shlex.join(["magic-committer", *_way_of(self.s3), *words])

    def advise(self, words: str, command: str) -> None:
        """Note a sentence, and the command that does it, which has a line of its own."""
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else PIPE_COLUMNS
        for line in (*wrapped("", words, width), f"  {command}"):
            self.note(line)

    def confirm(self, question: str) -> None:
        """Go on only if the user says yes. UsageError: there is nobody to ask. Abort: the answer is
        another."""
        if not sys.stdin.isatty():
            raise click.UsageError("there is no terminal to ask on: give --yes, or --dry-run")
        for bars in BARS:
            bars.stop()
        click.confirm(question, abort=True, err=True)


@contextmanager
def shown_progress(quiet: bool) -> Iterator[ProgressFunction]:
    """A function for the library's ``progress=``; its bars go when the block ends. ``quiet``: show
    nothing, on a terminal too."""
    if quiet or not sys.stderr.isatty():
        yield no_progress
        return
    from rich import progress
    from rich.console import Console

    bars = progress.Progress(
        progress.TextColumn("{task.description}"), progress.BarColumn(),
        progress.MofNCompleteColumn(), progress.TimeElapsedColumn(),
        console=Console(file=sys.stderr), transient=True,
        redirect_stdout=False,  # results stay on stdout
    )  # fmt: skip
    known: dict[str, Any] = {}

    def tell(step: Progress) -> None:
        if step.phase not in known:
            known[step.phase] = bars.add_task(f"{step.phase} ({step.unit})", total=step.total)
        if not bars.live.is_started:
            bars.start()
        bars.update(known[step.phase], completed=step.done, total=step.total)

    BARS.append(bars)
    try:
        yield tell
    finally:
        bars.stop()
        BARS.remove(bars)


def _way_of(s3: S3Options) -> tuple[str, ...]:
    """The global options that lead to the same store. An endpoint that holds credentials is left
    out."""
    endpoint = None if "@" in (s3.endpoint_url or "") else s3.endpoint_url
    way = (("--profile", s3.profile), ("--region", s3.region), ("--endpoint-url", endpoint))
    return tuple(word for name, value in way if value for word in (name, value))


def in_backticks(s3: S3Options) -> Callable[[Remedy], str]:
    """Words a remedy as a command that reaches the same store."""
    return lambda remedy: f"`{as_command(remedy, _way_of(s3))}`"


def told(error: MagicError, s3: S3Options) -> str:
    """An error in a line: ``str(error)``, with commands for calls."""
    hint = sentence(error.advice, error.remedies, in_backticks(s3))
    return f"{error.message}. {hint}" if hint else error.message


def _unfinished(error: CommitIncomplete, s3: S3Options) -> dict[str, Any]:
    """For programs: which keys, and what may be done."""
    keys, way = ("unresolved", "refused", "unfinished", "outstanding"), _way_of(s3)
    dest = error.remedies[0].dest if error.remedies else ""
    told = {"job_id": error.job_id, "dest": dest, "outcome": "committed", "state": error.state}
    remedies = [{**one.to_dict(), "command": as_command(one, way)} for one in error.remedies]
    return {**told, **{n: list(getattr(error, n)) for n in keys}, "remedies": remedies}


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
            shared = _shared(context, {name: given.pop(name) for name in COMMON})
            how = cast(Format, shared["how"] or "table")
            if how == "prometheus" and name != "cleanup":
                raise click.UsageError("--format prometheus is for `cleanup`: no other has metrics")
            output = Output(how, changes=given.get("dry_run") is False)
            quiet, debug = bool(shared["quiet"]), bool(shared["debug"])
            if debug:
                # Our own log only: the SDK's has signatures and session tokens in it.
                logging.basicConfig(level=logging.WARNING)
                logging.getLogger("magic_committer").setLevel(logging.DEBUG)
            s3 = S3Options()
            try:
                s3 = S3Options(**{name: shared[name] for name in S3Place.__annotations__})
                with patient(), shown_progress(quiet) as progress:
                    code = function(Shell(s3, output, quiet, debug, progress), **given)
            except MagicError as error:
                if debug:
                    traceback.print_exc()
                if isinstance(error, CommitIncomplete):
                    output.document("job.unfinished", _unfinished(error, s3))
                note(f"magic-committer: {told(error, s3)}")
                code = exits.code_of(error)
            except BaseException as interrupt:
                reword_notes(interrupt, in_backticks(s3))
                raise
            output.flush()
            if output.lost and not isinstance(output.lost[0], BrokenPipeError):
                code = code or (exits.OK if output.changes else exits.FAILED)
                ended = f"the command ran to its end (exit code {code}), but its report"
                words = ended if output.changes else "the results"
                note(f"magic-committer: {words} could not be printed: {output.lost[0].strerror}")
            if code:
                raise click.exceptions.Exit(code)

        made = group.command(name, cls=Explained, short_help=short)(common(run))
        assert isinstance(made, Explained)  # click's types do not say so of a method
        words = name if group.name == "root" else f"{group.name} {name}"
        made.examples = tuple(f"{words} {example}" for example in examples)
        return made

    return decorate


def _shared(context: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """The values of the common options: those of the command, then those given before it."""
    above = _shared(context.parent, context.parent.params) if context.parent else {}
    if values["as_json"] and values["how"] not in (None, "json"):
        raise click.UsageError("--json and --format say different things: give one", context)
    mine = {**values, "how": "json" if values["as_json"] else values["how"]}
    return {name: mine[name] or above.get(name) for name in COMMON}


recursive = click.option(
    "--recursive", "deep", is_flag=True,
    help="Look at all directories below PATH too: one listing of its objects, a request for each"
    " 1,000.",
)  # fmt: skip


@dataclass(slots=True)
class Reach:
    """The paths of one command, and how the looks at them ended. A look that finds nothing is an
    all-clear only for what it has seen, so it names what was not looked at.

    ``many``: a path that fails does not stop the others; else its error is the command's. ``deep``:
    the directories below the paths are looked at too. ``not_looked_at``: URLs of what failed, and
    of the paths below which something was left out. ``codes``: the exit codes of the parts.
    """

    shell: Shell
    many: bool
    deep: bool = False
    not_looked_at: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)

    @contextmanager
    def trying(self, url: str) -> Iterator[None]:
        """Around the work on one path, or on one destination below it. Its exit code is what is
        added within, else that of its error, else `OK`."""
        before = len(self.codes)
        try:
            yield
        except MagicError as error:
            if not (self.many or self.deep):
                raise
            self.failed(url, exits.code_of(error), f"{url}: {told(error, self.shell.s3)}")
        else:
            if len(self.codes) == before:
                self.codes.append(exits.OK)

    def failed(self, url: str, code: int, why: str) -> None:
        """Say that a path, or something below it, was not looked at."""
        note(f"magic-committer: {why}")
        self.codes.append(code)
        self.not_looked_at.append(url)

    def destinations(self, path: Destination) -> tuple[tuple[Destination, ...], tuple[str, ...]]:
        """The destinations to be looked at for a path: it alone, or all below it that have jobs;
        and why not all are known."""
        if not self.deep:
            return (path,), ()
        return jobs_below(self.shell.runtime(path.bucket), path)

    def found_nothing(self, path: Destination) -> bool:
        """A look at a path found nothing. Whether there are directories below it that were not
        looked at; `tell` says so."""
        if self.deep or path.url in self.not_looked_at:
            return False
        try:
            if not has_deeper(self.shell.runtime(path.bucket), path):
                return False
        except StoreError:
            pass  # nobody knows what is below: it was not looked at in any case
        self.not_looked_at.append(path.url)
        way = self.shell.line("job", "list", path.url, "--recursive")
        self._notes.append(f"note: only {path.url} itself was looked at; `{way}` looks below")
        return True

    def tell(self) -> None:
        """Say, after the results, what was not looked at."""
        for line in self._notes:
            self.shell.note(line)

    @property
    def code(self) -> int:
        """The exit code of all looks together."""
        return exits.together(self.codes)

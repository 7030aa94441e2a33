"""What a committer is: one job in one process, and the attempts that it makes.

From the task's commit on each job is the same, with one record, one fence, one commit
(`commit.driver`) and one recovery. A committer adds how its attempts write.

* An attempt makes nothing visible. Its commit is atomic: all of its files, or none.
* A value that travels (`StartedJob`, `TaskCommit`) holds no client, no lock and no secret. A
  committer does not travel: it is made in each process anew.
* A destination of another scheme is refused by `Committer.destination`, before anything is done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from magic_committer.commit import register
from magic_committer.commit.driver import Driver, settle_runs
from magic_committer.commit.requests import refuse_threads
from magic_committer.commit.setup import join_job, setup_job
from magic_committer.commit.stream import refuse_early
from magic_committer.committers.ends import TaskAttempt
from magic_committer.errors import (
    ConflictingJob,
    JobExists,
    MagicError,
    OptionError,
    WrongType,
)
from magic_committer.hadoop.paths import Destination
from magic_committer.options import Mode, Options, Track
from magic_committer.protocol.record import StartedJob, TaskCommit, Terms
from magic_committer.runtime.components import Runtime
from magic_committer.stores.base import refusal_of
from magic_committer.stores.unconditional import unconditional
from magic_committer.stores.urls import is_tree_url
from magic_committer.upload import BlockSource

A = TypeVar("A", bound=TaskAttempt, covariant=True)


class Committer(Generic[A]):
    """One started job in one process. It holds components and does not travel; the job does."""

    name: ClassVar[str]
    attempts: ClassVar[Callable[..., Any]]
    """The class of its attempts."""
    tracks: ClassVar[tuple[Track, ...]]
    """Where its attempts can keep what their commit needs; the first, if the caller does not
    say."""

    def __init__(
        self, runtime: Runtime, job: StartedJob, options: Options, blocks: BlockSource
    ) -> None:
        self.runtime = as_agreed(runtime, job.terms, options)
        self.job = job
        self.options = options
        self.blocks = blocks

    @classmethod
    def destination(cls, dest: str) -> str:
        """The URL of a destination as jobs write it, with its trailing slash. Raises PathError for
        one that is none of this committer's. Pure."""
        return Destination.parse(dest).url

    @classmethod
    def mode(cls, mode: Mode) -> Mode:
        """The mode of the record, for the mode that the caller means. Raises OptionError for one
        that this committer does not have. Pure."""
        return mode

    def _say(self) -> None:
        """Say what a user has to know of a job that was started."""

    # A job ----------------------------------------------------------------------------------------

    @classmethod
    def setup(
        cls,
        runtime: Runtime,
        dest: Destination,
        terms: Terms,
        options: Options,
        blocks: BlockSource,
        job_id: str | None = None,
        *,
        said_mode: str = "",
        join: bool = False,
        checkpoint: str = "",
    ) -> Self:
        """Start a job: see `setup.setup_job`."""
        if checkpoint:
            refuse_early(cls.name)
        refuse_threads(runtime.store, options.commit_threads)
        if why := refusal_of(runtime.store, cls.name, terms.mode):
            raise OptionError(f"{dest.url}, {cls.name!r}, mode {terms.mode!r}: {why}")
        agreed = as_agreed(runtime, terms, options)
        asked = (agreed, dest, terms, job_id, said_mode, checkpoint)
        try:
            job = setup_job(*asked)
        except ConflictingJob as conflict:
            if not checkpoint or job_id is not None:
                raise
            # A crashed run of the same query may be all that is in the way.
            try:
                settle_runs(agreed, dest, checkpoint)
            except MagicError as error:
                raise conflict from error
            job = setup_job(*asked)
        except JobExists:
            if not join or job_id is None:
                raise
            job = join_job(agreed, dest, terms, job_id, said_mode, checkpoint)
        committer = cls(runtime, job, options, blocks)
        committer._say()
        return committer

    def attempt(self, task: str, attempt: str | None = None, *, sole: bool = False) -> A:
        """Make an attempt of a task. Sends nothing.

        ``attempt``: its name, unique in the job, by which processes share it; None: draw one.
        ``sole``: no other process shares it: needed if its files are known in memory only."""
        if self.job.adopted:
            raise OptionError(
                f"job {self.job.id!r} is Hadoop's, adopted: it accepts no tasks of this library",
                hint="Commit or abort it, and start a job of your own",
            )
        shared, track = attempt is not None and not sole, self.job.terms.track
        if track not in self.tracks:  # a record that this library did not write
            raise OptionError(
                f"committer={self.name!r} has no track={track!r}",
                hint="Start another job, without track",
            )
        if shared and track == "memory":
            why = (
                "it needs track='s3', as with track='memory' the handle that opened the files"
                " commits an attempt"
                if "s3" in self.tracks
                else f"committer={self.name!r} has no attempts that several processes share"
            )
            raise OptionError(
                f"attempt={attempt!r}: {why}",
                hint="Leave attempt out: each call of job.task(...) makes another attempt",
            )
        return self._make(task, attempt or self.runtime.ids(), shared=shared)

    def committed_attempt(self, result: TaskCommit) -> A:
        """Make the handle of an attempt that is already committed, from its result."""
        attempt = self._make(result.task, result.attempt, shared=False)
        attempt.was_committed(result)
        return attempt

    def _make(self, task: str, attempt: str, *, shared: bool) -> A:
        made: A = self.attempts(
            self.runtime, self.job, self.options, task, attempt, blocks=self.blocks, shared=shared
        )
        return made

    def driver(self, role: str = "driver", accept: Collection[str] = ()) -> Driver:
        """What commits or ends the job."""
        return Driver(self.runtime, self.job, role, accept)


def driver_of(
    runtime: Runtime,
    dest: Destination,
    seen: register.Seen,
    options: Options,
    role: str = "recovery",
    accept: Collection[str] = (),
) -> Driver:
    """What finishes or ends a job that was found on the store, by its record."""
    job = StartedJob.attached(seen.record, dest.url, seen.etag)
    return Driver(as_agreed(runtime, job.terms, options), job, role, accept)


def as_agreed(runtime: Runtime, terms: Terms, options: Options) -> Runtime:
    """The components as the job's record and the options say."""
    on = terms.conditional_writes == "on"
    store = runtime.store if on else unconditional(runtime.store)
    return replace(runtime, store=store, in_flight=options.commit_threads)


JobCommitter = Committer[TaskAttempt]
"""A committer, whatever its attempts are."""

__all__ = ["Committer", "JobCommitter", "TaskAttempt"]

# The committers by name ---------------------------------------------------------------------------


COMMITTERS: Mapping[str, str] = {
    "magic": "magic_committer.committers.magic:MagicCommitter",
    "directory": "magic_committer.committers.staging:DirectoryCommitter",
    "partitioned": "magic_committer.committers.staging:PartitionedCommitter",
    "manifest": "magic_committer.committers.manifest:ManifestCommitter",
    "v1": "magic_committer.committers.manifest:V1Committer",
    "v2": "magic_committer.committers.manifest:V2Committer",
}
"""The committers of this library: their names in records, and where their classes are."""

ALIASES: Mapping[str, str] = {"staging": "directory", "file": "v1"}
"""Other names that are understood: Hadoop's. A record has the name of `COMMITTERS`. Hadoop's
``file`` is `FileOutputCommitter`: of its two algorithms the one that keeps more promises."""


def default_for(dest: object) -> str:
    """The committer of a destination for which nobody names one. A destination of an unknown scheme
    gets magic, which refuses it and names the URLs that it accepts. Pure."""
    return "manifest" if is_tree_url(dest) else "magic"


def committer_for(dest: str, said: str | None) -> type[JobCommitter]:
    """The committer of a new job. ``said``: the name that the caller gave; None: none."""
    return named(default_for(dest) if said is None else said)


def real_name(name: str) -> str:
    """The name that a record has, for a name or an alias, in any case."""
    if not isinstance(name, str):
        raise WrongType(
            f"committer is a name, not {type(name).__name__}: {name!r:.80}",
            hint="Pass committer='magic'",
        )
    word = name.casefold()
    word = ALIASES.get(word, word)
    if word in COMMITTERS:
        return word
    import difflib  # late: it loads a lot, and few need it

    known = [*COMMITTERS, *ALIASES]
    nearest = difflib.get_close_matches(word, known, n=1)
    raise OptionError(
        f"committer={name!r} is unknown",
        hint=(f"Did you mean {nearest[0]!r}? " if nearest else "")
        + f"There are {', '.join(known)}",
    )


def named(name: str) -> type[JobCommitter]:
    """The class of a committer."""
    module, _, attribute = COMMITTERS[real_name(name)].partition(":")
    return cast("type[JobCommitter]", getattr(import_module(module), attribute))

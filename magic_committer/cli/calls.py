"""Ways out of an error, as commands that can be pasted.

The library's errors say what to do in Python. At the command line the same is said in commands,
with the same way to the store; what the error is about stands in its fields, so nothing is parsed.
"""

from __future__ import annotations

import shlex
from types import TracebackType

from magic_committer.cli.shell import Shell
from magic_committer.commit.outcome import way_out_of_unresolved
from magic_committer.errors import (
    KEYS_NAMED_MAX,
    AbortIncomplete,
    AlreadyVisible,
    CommitIncomplete,
    CommitRefused,
    JobError,
    JobExists,
    JobNotRunning,
    OutcomeUnknown,
)
from magic_committer.hadoop.paths import Destination
from magic_committer.options import S3Options
from magic_committer.protocol.record import State

ENDING = ("commit", "abort", "recover")
"""Commands that adopt a Hadoop job, if they are told to."""


class Calls:
    """The commands about one job. As a context manager: errors that leave the block speak them."""

    def __init__(self, shell: Shell, dest: Destination, job_id: str, verb: str) -> None:
        """
        Args:
            verb: of the command that runs.
        """
        self.dest = dest
        self.job_id = job_id
        self.verb = verb
        self.adopting: tuple[str, ...] = ()
        """What each command that ends the job needs while it is Hadoop's."""
        self._shell = shell

    def __call__(self, verb: str, *more: str) -> str:
        """``magic-committer job <verb> <path> <job> <more>``: quoted for a shell, in backticks."""
        s3 = self._shell.s3
        way = (("--profile", s3.profile), ("--region", s3.region), ("--endpoint-url", _shown(s3)))
        words = ["magic-committer", "job", verb, self.dest.url, self.job_id]
        words += [*self.adopting, *more] if verb in ENDING else more
        words += [word for name, value in way if value for word in (name, value)]
        return f"`{shlex.join(words)}`"

    def __enter__(self) -> Calls:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, CommitIncomplete):
            self._tell_unfinished(error)
        if isinstance(error, JobError):
            error.hint = self._way_out(error) or error.hint

    def _way_out(self, error: JobError) -> str:
        match error:
            case CommitIncomplete(unresolved=keys) if keys:
                return self._about_unresolved(error)
            case CommitIncomplete(outstanding=keys) if keys:
                return (
                    f"Never abort it; finish it, as often as it takes: {self('recover')}; or take"
                    f" these keys as they are: {self('recover', *_accepting(keys))}{_rest(keys)}"
                )
            case CommitIncomplete():
                return f"Never abort it; finish it, as often as it takes: {self('recover')}"
            case AlreadyVisible():
                return (
                    f"Finish it: {self('commit')}; or leave these files there and abort the rest:"
                    f" {self('abort', '--leave-visible')}"
                )
            case CommitRefused(report=None):  # Hadoop's: nothing was decided
                return (
                    "Nothing was decided. Add --accept and a key for each that is right as it is,"
                    f" or abort it: {self('abort')}"
                )
            case JobExists():  # somebody else was faster
                return f"It needs no adoption any more: {self(self.verb)}"
            case AbortIncomplete():
                return (
                    f"Do it again: {self('recover')}. If that never ends, see what giving it up"
                    f" would leave: {self('abort', '--force', '--dry-run')}"
                )
            case OutcomeUnknown():
                return f"Look again later: {self('show')}"
            case JobNotRunning(state=State.COMMITTING):
                return f"Finish it: {self('recover')}, or undo it: {self('abort', '--revert')}"
        return ""

    def _about_unresolved(self, error: CommitIncomplete) -> str:
        keys = error.unresolved
        return way_out_of_unresolved(
            error,
            again=self("recover"),
            accept=f"{self('recover', *_accepting(keys))}{_rest(keys)}",
            undo=self("abort", "--revert"),
        )

    def _tell_unfinished(self, error: CommitIncomplete) -> None:
        """For programs: which keys, on stdout."""
        told = {
            "job_id": self.job_id,
            "dest": self.dest.url,
            "outcome": "committed",
            "state": error.state,
            "unresolved": list(error.unresolved),
            "refused": list(error.refused),
            "unfinished": list(error.unfinished),
            "outstanding": list(error.outstanding),
        }
        self._shell.output.document("job.unfinished", told)


def _accepting(keys: tuple[str, ...]) -> list[str]:
    return [word for key in keys[:KEYS_NAMED_MAX] for word in ("--accept", key)]


def _rest(keys: tuple[str, ...]) -> str:
    more = len(keys) - KEYS_NAMED_MAX
    return f" (and {more} keys more, see --format json)" if more > 0 else ""


def _shown(s3: S3Options) -> str | None:
    """The endpoint, unless it holds credentials."""
    return None if "@" in (s3.endpoint_url or "") else s3.endpoint_url

"""The commands about one job: which it is, and what its errors say.

What may be done about an error stands in its remedies, as data. Of a Hadoop job that is not adopted
yet each command that ends it has to adopt it first: that is added here.
"""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType

from magic_committer.cli.places import Place
from magic_committer.cli.shell import Shell
from magic_committer.cli.wording import remedies_of
from magic_committer.errors import CommitIncomplete, JobError, JobExists
from magic_committer.remedy import DEAD_AFTER, Call, Remedy

ENDING = ("commit", "abort", "recover")
"""Commands that adopt a Hadoop job, if they are told to."""


class Calls:
    """The commands about one job. As a context manager: errors that leave the block speak them."""

    def __init__(self, shell: Shell, dest: Place, job_id: str, verb: Call) -> None:
        """
        Args:
            verb: of the command that runs.
        """
        self.dest = dest
        self.job_id = job_id
        self.verb = verb
        self.settled: float | None = None
        """The limit that each command needs which adopts the job; None: the default."""
        self.is_hadoops = False
        """It is not adopted yet: each command that ends it has to adopt it."""
        self._shell = shell

    def remedy(self, call: Call, why: str, **options: object) -> Remedy:
        """One thing that may be done about this job."""
        return Remedy(call, self.dest.url, self.job_id, why, options)

    def __enter__(self) -> Calls:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, JobError):
            error.remedies = tuple(map(self._adopting, error.remedies))
        if isinstance(error, JobExists):  # somebody else was faster in adopting it
            error.remedies = (self.remedy(self.verb, "run this again"),)
        if isinstance(error, CommitIncomplete):
            self._tell_unfinished(error)

    def _adopting(self, remedy: Remedy) -> Remedy:
        """The remedy as this command line has it: a job is adopted by what ends it."""
        adopt: dict[str, object] = {"adopt": True}
        if remedy.call == "adopt":
            return replace(remedy, call=self.verb, options={**adopt, **remedy.options})
        if not self.is_hadoops or remedy.call not in ENDING or remedy.job_id != self.job_id:
            return remedy
        if self.settled is not None:
            adopt[DEAD_AFTER] = self.settled
        return replace(remedy, options={**adopt, **remedy.options})

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
            "remedies": remedies_of(error, self._shell.s3),
        }
        self._shell.output.document("job.unfinished", told)

"""The classic committers, ``"v1"`` and ``"v2"``: MapReduce's `FileOutputCommitter`, on file trees.

They are here to be compared with, and for local disks whose users want just this. Where nobody asks
for them, a destination of files gets ``"manifest"``, which promises more and costs the same. Their
attempts are manifest's, and so are the job's record, driver, recovery and cleanup:

* **v1**: the driver renames all files to their places, and then decides.
* **v2**: the commit of a task renames its files to their places, and then stores its manifest. The
  job's commit finds them there.

What they do not promise:

* **v1 is not decided before its files appear.** A job that dies in its commit leaves some of them
  visible. To commit again goes on; a recovery or an abort does not, and takes nothing back.
* **v2 shows the files of tasks whose job fails**, and of attempts that fail in their commit.
* No ``replace``, and no batch of a streaming query.
"""

from __future__ import annotations

import logging
from contextlib import closing
from functools import partial
from typing import ClassVar

from magic_committer.commit import published
from magic_committer.committers.manifest import ManifestCommitter, TreeAttempt
from magic_committer.errors import NotFound, OptionError, TaskFailed
from magic_committer.hadoop.manifests import ManifestFile
from magic_committer.hadoop.paths import waiting_id
from magic_committer.options import Mode
from magic_committer.stores.base import Part, same_etag

__all__ = ["V1Committer", "V2Committer"]

logger = logging.getLogger("magic_committer")

MODES: tuple[Mode, ...] = ("append", "fail")


class V1Committer(ManifestCommitter):
    """One started job of algorithm 1 in one process."""

    name: ClassVar[str] = "v1"
    batches: ClassVar[bool] = False

    @classmethod
    def mode(cls, mode: Mode) -> Mode:
        """See `Committer.mode`: nothing is replaced, and partitions are not looked at."""
        if mode not in MODES:
            raise OptionError(
                f"committer={cls.name!r} has no mode {mode!r}, only {', '.join(map(repr, MODES))}",
                hint="Use committer='manifest', which has all modes",
            )
        return mode


class V2Committer(V1Committer):
    """One started job of algorithm 2 in one process."""

    name: ClassVar[str] = "v2"

    def _say(self) -> None:
        logger.warning(
            "job %s: committer 'v2' makes the files of each task visible when the task commits: if"
            " a task or the job fails, they stay. committer='manifest' shows all or none",
            self.job.id,
        )

    def _make(self, task: str, attempt: str, *, shared: bool) -> TreeAttempt:
        return V2Attempt(self.runtime, self.job, self.options, task, attempt)


class V2Attempt(TreeAttempt):
    """An attempt whose commit renames its files to their places. Nothing is taken back."""

    def _before_set(self) -> None:
        """Make the files visible. Repeatable by this handle."""
        if not self._named:
            return
        self._again(partial(published.begin, self._runtime, self.job))
        rename = self._runtime.pool.each(
            self._publish, self._named, in_flight=self._options.commit_threads
        )
        with closing(rename) as outcomes:
            for outcome in outcomes:
                outcome.unwrap()

    def _publish(self, file: ManifestFile) -> None:
        path = f"{self._root}/{file.name}"
        parts = [Part(1, file.etag, file.size)]
        try:
            upload_id = waiting_id(path, file.etag)
            self._again(lambda: self._store.complete_upload(file.name, upload_id, parts))
        except NotFound as error:
            if not self._is_there(file):
                raise TaskFailed(
                    f"{path} was a file of the task, and is gone",
                    job_id=self.job.id,
                    hint="Run the task again",
                ) from error

    def _is_there(self, file: ManifestFile) -> bool:
        try:
            return same_etag(self._store.head(file.name).etag, file.etag)
        except NotFound:
            return False

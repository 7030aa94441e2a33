"""Reverting: a decided job is undone, before it completed (states ``reverting`` and ``reverted``).

For each upload of the plan **abort, then HEAD, then delete** if the object is what it became:
looking first would leave a Complete in between visible (counterexamples.md, #7). Deleted is the
very version that was looked at: by its ETag, or by its version id in a versioned bucket; what
somebody wrote since is theirs. Repeatable, by anyone; only then the record says ``reverted``, and
only then is the job swept: until then its pendingsets are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from magic_committer.commit import records
from magic_committer.commit.complete import became
from magic_committer.commit.deletes import delete_if_same
from magic_committer.commit.execute import Source
from magic_committer.commit.ready import ReadyUpload
from magic_committer.errors import AbortIncomplete, FormatError, MagicError, NotFound, StoreError
from magic_committer.job import StartedJob, State
from magic_committer.runtime import Progress, Runtime


def undo(
    runtime: Runtime, job: StartedJob, seen: records.Seen, source: Source, in_flight: int
) -> records.Seen | None:
    """Undo every upload of a ``reverting`` job, then say so. Repeatable.

    Returns:
        The stored record: ``reverted``, or what another process has made of it.

    Raises:
        AbortIncomplete: not everything could be undone; do it again.
    """
    done = 0
    failure: MagicError | None = None

    def uploads() -> Iterator[ReadyUpload]:
        for some, _ in source.uploads():
            yield from some

    try:
        with closing(_each(runtime, job, uploads(), in_flight)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome.error, StoreError):
                    failure = outcome.error
                    continue
                outcome.unwrap()
                done += 1
                runtime.progress(Progress("revert", done, None, "files"))
        if failure is None:
            return _swap(runtime, seen)
    except (StoreError, FormatError) as error:  # a pendingset of the plan cannot be read
        failure = error
    now = records.read(runtime, seen.key)
    if now is None or now.record.state is not State.REVERTING:
        return now
    raise AbortIncomplete(
        f"job {job.id!r} is being reverted, but not all of it is gone ({failure.message})",
        job_id=job.id,
        hint=f"Do it again: magic_committer.attach({job.dest!r}, {job.id!r}).abort()",
    ) from failure


def _each(runtime: Runtime, job: StartedJob, uploads: Iterator[ReadyUpload], in_flight: int) -> Any:
    def one(upload: ReadyUpload) -> None:
        runtime.store.abort_upload(upload.key, upload.upload_id)
        try:
            info = runtime.store.head(upload.key)
        except NotFound:
            return
        if became(upload, info):
            delete_if_same(runtime, info.key, info.etag, info.version_id)

    return runtime.pool.each(one, uploads, in_flight=in_flight)


def _swap(runtime: Runtime, seen: records.Seen) -> records.Seen | None:
    return records.swap(runtime, seen, seen.record.step(State.REVERTED, runtime.ids())).now

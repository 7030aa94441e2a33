"""Other jobs that may write under, above or below a destination: for jobs that claim to be alone.

An ``exclusive`` job removes uploads even if nothing says that they are its own. Before it does, it
looks for other jobs that may own them, in every directory between the bucket's root and each such
upload: a job's record may be in any of these. **Uploads first, records second**: a job that was set
up in between shows its record, and its uploads were not in the listing (counterexamples.md, K1).

These count as another job: a job of ours whose record is not closed; a job's directory without a
record, as Hadoop's jobs have; Hadoop's older ``__magic/``; and everything that cannot be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.errors import MagicError, PathError
from magic_committer.hadoop.paths import MAGIC, MAGIC_JOB_PREFIX, RECORD, Destination
from magic_committer.protocol.record import State


def directory_of(key: str) -> str:
    """The directory of a key: ``"a/b/"`` for ``a/b/c``."""
    return key[: key.rfind("/") + 1]


def at_and_above(directory: str) -> Iterator[str]:
    """A directory and all above it: ``""``, ``"a/"``, ``"a/b/"`` for ``a/b/``."""
    yield ""
    for index, character in enumerate(directory):
        if character == "/":
            yield directory[: index + 1]


def job_directories_in(runtime: Runtime, place: str) -> tuple[str, ...]:
    """The committers' directories directly in a directory: ``__magic_job-…/`` and ``__magic/``.

    Raises:
        StoreError: the directory could not be listed.
    """
    try:
        Destination(runtime.store.bucket, place)
    except PathError:
        return ()  # no job can be there
    return tuple(
        found
        for page in runtime.store.list(f"{place}{MAGIC}", delimiter="/")
        for found in page.prefixes
        if found == f"{place}{MAGIC}/" or found.startswith(f"{place}{MAGIC_JOB_PREFIX}")
    )


def somebody_else(
    runtime: Runtime, dest: Destination, own_record: str, uploads: Iterable[str], in_flight: int
) -> str:
    """Who else may own the uploads, in words; "" if nobody does. Raises no `MagicError`.

    Args:
        runtime, dest: the components and the job's destination.
        own_record: key of the record of the job that asks.
        uploads: the keys of the uploads. They were listed before this call.
        in_flight: how many requests at once.
    """
    places = set(at_and_above(dest.prefix))
    for directory in set(map(directory_of, uploads)):
        places.update(at_and_above(directory))
    bucket = f"s3://{runtime.store.bucket}/"
    directories: list[str] = []
    listed = runtime.pool.each(
        lambda place: job_directories_in(runtime, place), sorted(places), in_flight=in_flight
    )
    with closing(listed):
        for outcome in listed:
            if isinstance(outcome.error, MagicError):
                return f"the jobs under {bucket}{outcome.item} cannot be told: {outcome.error}"
            directories += outcome.unwrap()
    judged = runtime.pool.each(
        lambda directory: _of(runtime, directory, own_record), directories, in_flight=in_flight
    )
    with closing(judged):
        for one in judged:
            if isinstance(one.error, MagicError):
                return f"the job of {bucket}{one.item} cannot be told: {one.error}"
            if somebody := one.unwrap():
                return somebody
    return ""


def _of(runtime: Runtime, directory: str, own_record: str) -> str:
    """Whether a job's directory shows another owner, in words; "" if not."""
    where = f"s3://{runtime.store.bucket}/{directory}"
    name = directory[directory.rfind("/", 0, -1) + 1 :]
    if not name.startswith(MAGIC_JOB_PREFIX):
        return f"a job of Hadoop up to 3.3 may be using {where}"
    key = f"{directory}{RECORD}"
    if key == own_record:
        return ""
    seen = records.read(runtime, key)
    if seen is None:
        return f"{where} has no record of this library: a job of Hadoop may be using it"
    if seen.record.state is State.CLOSED:
        return ""
    above = directory[: len(directory) - len(name)]
    return f"job {seen.record.id!r} lives under s3://{runtime.store.bucket}/{above}"

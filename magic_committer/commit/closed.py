"""Closed records: one small object stays of each job that another process than its driver ended.

A closed record answers whoever still asks what became of its job. After a day it may go, if its id
was drawn: such an id is never used again. A given id stays taken until an operator says that no
process of its job lives (`magic_committer.cleanup`).

Whoever leaves a closed record looks at some others, from its own place in the listing on: ids are
drawn, so the jobs of a destination share the work. Whoever reads records anyway takes old ones
along. A job that deletes its own record pays nothing. Nothing here fails a job: what could not be
deleted is left to the next.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import closing
from itertools import chain, islice
from typing import Any

from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.errors import MagicError, OutcomeUnknown, StoreError
from magic_committer.hadoop.elements import MAGIC_JOB_PREFIX
from magic_committer.hadoop.paths import RECORD
from magic_committer.protocol.record import State

logger = logging.getLogger("magic_committer")

FORGET_AFTER_SECONDS = 24 * 3600.0
"""A closed record stays this long, for drivers that still ask what became of their job."""
GRAIN_SECONDS = 1.0
"""S3 tells times in whole seconds, rounded down: what is 0.1 s old can be shown as 1 s old."""
LOOKED_AT_MAX = 100
"""Records that one job reads for this: a page of the listing, and so many GETs."""
DELETED_MAX = 20
"""Records that one job deletes for this."""
IN_FLIGHT = 16

_DRAWN = re.compile("[0-9a-f]{32}")
"""A drawn id is its job's UUID (setup). Others are given, and their records are not even read."""


def age_of(seen_at: float, since: float) -> float:
    """How many seconds have passed at least, by two times that a store told.

    A limit must hold in truth, not on rounded numbers: else a limit of one second takes a job for
    dead that says five times a second that it lives.
    """
    return max(0.0, seen_at - since - GRAIN_SECONDS)


def finish(
    runtime: Runtime,
    seen: records.Seen,
    outcome_word: str,
    may_remove: bool,
    warnings: list[str],
    *,
    tidies: bool = True,
) -> State:
    """The last arrow: the record goes, or says ``closed`` for whoever still asks.

    Errors become warnings: the record stays and recovery finishes it.
    """
    try:
        if may_remove and records.remove(runtime, seen):
            return State.ABSENT
        closed = seen.record.step(State.CLOSED, runtime.ids(), outcome=outcome_word, marker=None)
        swapped = records.swap(runtime, seen, closed)
    except (StoreError, OutcomeUnknown) as error:
        warnings.append(f"the job's record could not be finished: {error}")
        return seen.record.state
    if swapped.won and tidies:
        forget_some(runtime, seen.key)
    return swapped.now.record.state if swapped.now else State.ABSENT


def may_forget(seen: records.Seen) -> bool:
    """Whether a record is closed, of a drawn id, and old enough to go. Pure."""
    record = seen.record
    if record.state is not State.CLOSED or record.given_id:
        return False
    return age_of(seen.seen_at, seen.last_modified) >= FORGET_AFTER_SECONDS


def forget(runtime: Runtime, seen: records.Seen) -> bool:
    """Delete a record that `may_forget` allows, ``If-Match``. Repeatable; a failure is logged.

    Returns:
        Whether there is no such record any more.
    """
    if not may_forget(seen):
        return False
    try:
        return records.remove(runtime, seen)
    except MagicError as error:
        logger.info("the closed record %s was left: %s", seen.key, error)
        return False


def forget_some(runtime: Runtime, own_record: str) -> int:
    """Delete old closed records beside a job's own: at most `DELETED_MAX` of `LOOKED_AT_MAX`.
    Repeatable; a failure is logged.

    Args:
        own_record: key of the job's record. The look begins behind it and goes round.

    Returns:
        How many were deleted.
    """
    deleted = 0

    def read(key: str) -> records.Seen | None:
        return records.read(runtime, key)

    try:
        keys = islice(_others(runtime, own_record), LOOKED_AT_MAX)
        outcomes: Any = runtime.pool.each(read, keys, in_flight=IN_FLIGHT)
        with closing(outcomes):
            for outcome in outcomes:
                if isinstance(outcome.error, MagicError):
                    logger.info("%s could not be looked at: %s", outcome.item, outcome.error)
                    continue
                seen = outcome.unwrap()
                if seen is not None:
                    deleted += forget(runtime, seen)
                if deleted >= DELETED_MAX:
                    break
    except MagicError as error:
        logger.info("old closed records were left: %s", error)
    return deleted


def _others(runtime: Runtime, own_record: str) -> Iterator[str]:
    """Keys of the other records of a destination: behind the own one first, then before it."""
    directory = own_record.removesuffix(RECORD)
    prefix = directory[: directory.rindex("/", 0, -1) + 1] if "/" in directory[:-1] else ""
    prefix += MAGIC_JOB_PREFIX

    def directories(start_after: str) -> Iterator[str]:
        for page in runtime.store.list(prefix, delimiter="/", start_after=start_after):
            yield from page.prefixes

    def before() -> Iterator[str]:
        for found in directories(""):
            if found >= directory:
                return
            yield found

    behind = (found for found in directories(own_record) if found > directory)
    for found in chain(behind, before()):
        if _DRAWN.fullmatch(found[len(prefix) : -1]):
            yield f"{found}{RECORD}"

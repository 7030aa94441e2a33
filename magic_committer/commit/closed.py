"""Closed records: if another process than its driver ended a job, one small object stays.

A closed record answers a process that still asks what became of its job. After a day it may be
deleted if its id was drawn, as such an id is never used again. A given id is taken for 30 days.
Then the id starts a new job. A task of the old job cannot write into the new one: its fence is the
ETag of the old record, and its tokens hold the old UUID. A driver takes a record of another UUID
for none. Only a process that slept for 30 days and knows nothing but the id (`attach`), or slept
between two requests of its sweep, could reach the new job.

A process that leaves a closed record looks at some others, from its own place in the listing on, so
the jobs of a destination share this work. A process that reads records for other reasons deletes
old ones as well. A job that deletes its own record pays nothing. Nothing here makes a job fail: the
next process tries again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import chain, islice, takewhile

from magic_committer._runtime import Runtime
from magic_committer.commit import records
from magic_committer.errors import MagicError, OutcomeUnknown, StoreError
from magic_committer.hadoop.paths import MAGIC_JOB_PREFIX, RECORD
from magic_committer.protocol.ledger import StreamBatch
from magic_committer.protocol.record import State

logger = logging.getLogger("magic_committer")

FORGET_AFTER_SECONDS = 24 * 3600.0
"""A closed record stays for this many seconds, for drivers that still ask what became of their
job."""
FORGET_GIVEN_AFTER_SECONDS = 30 * 24 * 3600.0
"""The same for a given id: for so many seconds a repeat of the id is refused, or (`exist_ok`) reads
what became of the job."""
GRAIN_SECONDS = 1.0
"""S3 gives times in whole seconds, rounded down: an object that is 0.1 s old may look 1 s old."""
LOOKED_AT_MAX = 100
"""How many records one job reads for this: one page of the listing, and as many GETs."""
DELETED_MAX = 20
"""How many records one job deletes for this."""
BATCHES_PER_LOOK = 10
"""One micro-batch of a stream in so many looks at others: each leaves a record, and one a second
would read 100 records a second. The looks still delete twice as many as the batches leave."""
IN_FLIGHT = 16


def age_of(seen_at: float, since: float) -> float:
    """How many seconds have passed at least, by two times of a store.

    A limit must hold for the real times, not only for the rounded ones. Otherwise a limit of one
    second would take a job for dead that gives five signs of life in a second.
    """
    return max(0.0, seen_at - since - GRAIN_SECONDS)


def tidies(role: str, batch: StreamBatch | None) -> bool:
    """Whether who ends a job, in this role, looks at other closed records. Pure."""
    return role == "driver" and (batch is None or batch.number % BATCHES_PER_LOOK == 0)


def finish(
    runtime: Runtime,
    seen: records.Seen,
    outcome_word: str,
    may_remove: bool,
    warnings: list[str],
    *,
    look: bool = True,
) -> State:
    """The last arrow: delete the record, or close it for processes that still ask.

    Errors become warnings: the record stays, and recovery finishes the job. Gives the record's last
    state. ``look``: look at some other closed records too."""
    try:
        if may_remove and records.remove(runtime, seen):
            return State.ABSENT
        closed = seen.record.step(State.CLOSED, runtime.ids(), outcome=outcome_word, marker=None)
        swapped = records.swap(runtime, seen, closed)
    except (StoreError, OutcomeUnknown) as error:
        warnings.append(f"the job's record could not be finished: {error}")
        return seen.record.state
    if swapped.won and look:
        forget_some(runtime, seen.key)
    return swapped.now.record.state if swapped.now else State.ABSENT


def may_forget(seen: records.Seen) -> bool:
    """Whether a record is closed, and old enough to be deleted. Pure."""
    record = seen.record
    limit = FORGET_GIVEN_AFTER_SECONDS if record.given_id else FORGET_AFTER_SECONDS
    return record.state is State.CLOSED and age_of(seen.seen_at, seen.last_modified) >= limit


def forget(runtime: Runtime, seen: records.Seen) -> bool:
    """Delete a record that `may_forget` allows, ``If-Match``. Repeatable. A failure is logged."""
    if not may_forget(seen):
        return False
    try:
        return records.remove(runtime, seen)
    except MagicError as error:
        logger.info("the closed record %s was left: %s", seen.key, error)
        return False


def forget_some(runtime: Runtime, own_record: str) -> int:
    """Delete old closed records beside the job's own: at most `DELETED_MAX`, after looking at
    `LOOKED_AT_MAX`. Repeatable. A failure is logged. The look begins behind the own record and goes
    round. Gives how many were deleted."""
    deleted, read = 0, partial(records.read, runtime)
    try:
        keys = islice(_others(runtime, own_record), LOOKED_AT_MAX)
        with closing(runtime.pool.each(read, keys, in_flight=IN_FLIGHT)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome.error, MagicError):
                    logger.info("%s could not be looked at: %s", outcome.item, outcome.error)
                    continue
                seen = outcome.unwrap()
                deleted += seen is not None and forget(runtime, seen)
                if deleted >= DELETED_MAX:
                    break
    except MagicError as error:
        logger.info("old closed records were left: %s", error)
    return deleted


def _others(runtime: Runtime, own_record: str) -> Iterator[str]:
    """Keys of the other records of a destination: first those behind the own one, then those before
    it."""
    own = own_record.removesuffix(RECORD)
    prefix = own[: own[:-1].rfind("/") + 1] + MAGIC_JOB_PREFIX

    def directories(start_after: str) -> Iterator[str]:
        for page in runtime.store.list(prefix, delimiter="/", start_after=start_after):
            yield from page.prefixes

    behind = (directory for directory in directories(own_record) if directory > own)
    before = takewhile(lambda directory: directory < own, directories(""))
    return (f"{directory}{RECORD}" for directory in chain(behind, before))

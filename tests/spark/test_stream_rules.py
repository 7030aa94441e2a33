"""Streams without a Spark: each rule of the stream writer, and kills at drawn requests."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.spark import foreach_batch
from magic_committer.spark.driver import end_earlier_runs
from magic_committer.spark.source import MagicSource, WrittenPartition
from magic_committer.stores.memory import MemoryStore
from magic_committer.upload import sender
from tests.promises.hands import DEST, control
from tests.promises.machine import deaths
from tests.spark.micro_batches import (
    CHECKPOINT,
    QUERY,
    SCHEMA,
    Driver,
    expect_rows,
    new_driver,
    rows_in,
    rows_of,
)


def jobs(store: MemoryStore) -> set[str]:
    """The directories of jobs."""
    return {key.split("/")[1] for key in control(store) if key.startswith("t/__magic_job-")}


def test_batches_are_published_once_each(s3: MemoryStore) -> None:
    """Each run is a job, whose record goes; the ledger counts, also a batch without rows, which
    becomes no file; one that Spark has lost of its log is passed over."""
    driver = Driver()
    for batch in (0, 1, 1, 0, 2):
        driver.run(batch)
    driver.committing().commit(driver.written(driver.planned(), 3, rows=[]), 3)
    expect_rows(s3, range(3))
    state = mc.read_stream(DEST, QUERY)
    assert state is not None
    assert (state.done, state.claim) == (3, "")
    assert (jobs(s3), s3.open_uploads()) == (set(), ())


def test_a_batch_without_a_message_of_each_task_is_not_published(s3: MemoryStore) -> None:
    """A message that is missing is a task that is missing, also the last one."""
    driver = Driver()
    messages = driver.written(driver.planned(), 0)
    with pytest.raises(mc.IncompleteJob):
        driver.committing().commit([messages[0], None], 0)
    assert rows_in(s3) == []
    driver.committing().commit(messages, 0)
    expect_rows(s3, range(1))


def test_a_pickled_source_starts_no_job(s3: MemoryStore) -> None:
    """Spark makes another writer in the process that commits."""
    Driver().committing()
    assert s3.keys() == ()
    Driver().planned()
    assert len(jobs(s3)) == 1


def test_an_abort_with_messages_ends_that_run(s3: MemoryStore) -> None:
    """Also where one task sent none; the batch is run again."""
    driver = Driver()
    messages = driver.written(driver.planned(), 0)
    driver.committing().abort([None, messages[1]], 0)
    assert (jobs(s3), s3.open_uploads()) == (set(), ())
    driver.run(0)
    expect_rows(s3, [0])


def test_an_abort_without_messages_finds_the_run_by_the_checkpoint(s3: MemoryStore) -> None:
    """All tasks failed: a job of this query is aborted, another query's is not."""
    driver = Driver()
    other = mc.start(DEST, checkpoint="s3a://bucket/another")
    driver.written(driver.planned(), 0)
    driver.committing().abort([None, None], 0)
    assert s3.open_uploads() == ()
    assert mc.attach(DEST, other.id).state == "running"
    driver.run(0)
    expect_rows(s3, [0])


def test_a_new_driver_ends_what_a_killed_one_has_left(s3: MemoryStore) -> None:
    """Its upload would stay open until somebody cleans up; other queries are left alone."""
    other = mc.start(DEST, checkpoint="s3a://bucket/another")
    killed = Driver()
    killed.written(killed.planned(), 0)
    assert len(s3.open_uploads()) == 2
    new_driver().run(0)
    expect_rows(s3, [0])
    assert s3.open_uploads() == ()
    assert mc.attach(DEST, other.id).state == "running"


def test_a_driver_looks_for_earlier_runs_once(s3: MemoryStore) -> None:
    """Not before every batch: that would list the destination each time."""
    driver = Driver()
    driver.run(0)
    listed = s3.requests["list"]
    driver.planned()
    assert s3.requests["list"] == listed


def test_a_query_that_is_started_again_looks_again(s3: MemoryStore) -> None:
    """The first batch of a new run aborts what a killed driver left; later ones look no more."""
    new_driver()

    def looks(run: str) -> None:
        end_earlier_runs(DEST, CHECKPOINT, None, None, run=run)

    looks("first")
    killed = mc.start(DEST, checkpoint=CHECKPOINT)
    looks("first")
    assert mc.attach(DEST, killed.id).state == "running"
    looks("second")
    with pytest.raises(mc.JobNotRunning):
        killed.commit([])
    live = mc.start(DEST, checkpoint=CHECKPOINT)
    looks("second")
    assert mc.attach(DEST, live.id).state == "running"


def test_complete_mode_replaces_what_the_last_batch_wrote(s3: MemoryStore) -> None:
    """Also after a run that was killed, whose job would stand in the way of a replacing one."""
    driver = Driver(overwrite=True)
    driver.run(0)
    driver.written(driver.planned(), 1)  # and its driver is killed
    new_driver(overwrite=True).run(1)
    assert rows_in(s3) == rows_of(1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"path": DEST}, "no checkpointLocation"),
        ({"checkpointlocation": CHECKPOINT}, r"has no path.*\.start\("),
        ({"path": DEST, "checkpointlocation": CHECKPOINT, "if_exists": "error"}, "not for streams"),
    ],
)
def test_a_stream_that_cannot_be_counted_is_refused(
    s3: MemoryStore, given: dict[str, str], told: str
) -> None:
    """Nothing is started."""
    with pytest.raises(mc.OptionError, match=told):
        MagicSource(given).streamWriter(SCHEMA, False)
    assert s3.keys() == ()


@pytest.mark.parametrize(
    "wrong", [{"dest": "ftp://x/y"}, {"query": "a/b"}, {"format": "xlsx"}, {"s3": {}}]
)
def test_mistakes_of_foreach_batch_are_told_at_once(wrong: dict[str, Any]) -> None:
    """Not by a query that fails hours later."""
    with pytest.raises((mc.MagicError, TypeError)):
        foreach_batch(**{"dest": DEST, **wrong})


@pytest.mark.parametrize("aborts", [False, True])
@pytest.mark.parametrize("batch", [0, 1])
def test_rows_are_exact_whatever_is_killed(batch: int, aborts: bool) -> None:
    """A run is killed at each of its requests; Spark aborts it, or not, and runs it again: also a
    batch that is done, of which it has lost the last entry of its log."""
    for machine, kill in deaths(least=15):
        driver = new_driver()
        driver.run(0)
        messages: list[WrittenPartition | None] = [None, None]
        with suppress(mc.MagicError):  # where a thread of a pool asked
            kill(partial(driver.run, batch, messages))
        sender._unsettled.clear()  # a killed process ends none of its uploads
        if aborts:
            with suppress(mc.MagicError):
                driver.committing().abort(messages, batch)
        for again in (batch, 1, 0):
            new_driver().run(again)
        expect_rows(machine.s3, range(2))


def test_a_driver_that_wakes_up_finds_its_batch_done(s3: MemoryStore) -> None:
    """Another driver ran it while the first one paused before its commit: that is no error."""
    paused = Driver(attempt=100)
    messages = paused.written(paused.planned(), 0)
    Driver().run(0)
    paused.committing().commit(messages, 0)
    expect_rows(s3, [0])
    assert s3.open_uploads() == ()

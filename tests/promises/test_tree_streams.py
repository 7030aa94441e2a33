"""Micro-batches on a directory are published exactly once: whoever dies, loses an answer, or is
paused, at whichever verb of the store, and however often a batch is run."""

from __future__ import annotations

from typing import Any

import pytest

import magic_committer as mc
from magic_committer.commit.ledgers import StoreLedgers
from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.maintenance.streams import stream_state
from magic_committer.options import Options
from magic_committer.protocol.ledger import Claim, Ledger, hash_of
from magic_committer.protocol.record import TaskCommit, Terms
from tests.tree_jobs import Killed, Watched, World, die, lose_the_answer, write

QUERY = "7bd2f0b6-9e0c-4a6e-8d4c-0a3f4f7f6f10"
CHECKPOINT = hash_of("file:///checkpoint")

Run = tuple[ManifestCommitter, list[TaskCommit]]


def start(world: World) -> ManifestCommitter:
    """A job of the query."""
    terms = Terms(track="memory", accept="results", committer="manifest", mark_success=False)
    return ManifestCommitter.start(
        world.process(), world.url, terms, Options(), checkpoint=CHECKPOINT
    )


def run_of(world: World, number: int) -> Run:
    """A run of a batch whose tasks have ended: a job with two files of their own names."""
    job = start(world)
    body = str(number).encode()
    return job, [write(job, t, {f"{number}-{t}-{job.job.id}.csv": body}) for t in ("0", "1")]


def commit(world: World, run: Run, number: int, seen: Watched | None = None) -> mc.JobReport:
    """What the driver calls, in a process of its own that sees the store in its way."""
    job, results = run
    return world.again(job, seen).commit_job(results, batch=mc.StreamBatch(QUERY, number))


def publish(world: World, number: int) -> mc.JobReport:
    """A whole run of a batch."""
    return commit(world, run_of(world, number), number)


def rows(world: World) -> list[str]:
    """What readers see, in order: each batch twice, if it is published once, by two tasks."""
    return sorted(body.decode() for body in world.data().values())


def ledgers(world: World) -> StoreLedgers:
    """The destination's."""
    return StoreLedgers(world.runtime(), world.dest)


def jobs_left(world: World) -> list[str]:
    """The control files that are no ledger."""
    return [path for path in world.control() if not path.startswith("__magic_stream")]


def prepared() -> tuple[World, Run]:
    """A world with a published batch 6, and a run of batch 7 that is to be committed."""
    world = World()
    publish(world, 6)
    return world, run_of(world, 7)


def places() -> range:
    """Every verb in the commit of a second batch."""
    world, run = prepared()
    watched = Watched(world.store)
    commit(world, run, 7, watched)
    assert watched.count > 15
    return range(1, watched.count + 1)


def clean(world: World) -> None:
    """A cleanup for which everything is old."""
    for _ in range(2):  # one ends what is left, the next one forgets it
        assert not world.clean().errors


def test_a_batch_that_is_run_again_is_published_once() -> None:
    """The second run is told that the batch is published, is aborted, and leaves nothing."""
    world = World()
    first, again = publish(world, 7), publish(world, 7)
    assert (first.outcome, first.skipped, first.query, first.batch) == (
        "committed",
        False,
        QUERY,
        7,
    )
    assert (again.outcome, again.skipped, again.query, again.batch) == ("aborted", True, QUERY, 7)
    assert rows(world) == ["7", "7"]
    clean(world)
    assert not jobs_left(world)


def test_batches_follow_each_other() -> None:
    """Each is published, numbers may be left out, and the ledger tells the last one for people."""
    world = World()
    for number in (0, 1, 5):
        report = publish(world, number)
    assert rows(world) == ["0", "0", "1", "1", "5", "5"]
    told = ledgers(world).read(QUERY).ledger
    assert told is not None
    assert (told.done, told.done_by, told.claim) == (5, report.uuid, None)
    state = stream_state(ledgers(world), world.url, QUERY)
    assert state == mc.StreamState(QUERY, world.url, 5, report.uuid, checkpoint=CHECKPOINT)
    assert stream_state(ledgers(world), world.url, "another") is None


def test_an_older_batch_is_not_published_after_a_newer_one() -> None:
    """A zombie of an old driver comes late."""
    world = World()
    old = run_of(world, 6)
    publish(world, 7)
    assert commit(world, old, 6).skipped
    assert rows(world) == ["7", "7"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_driver_that_dies_at_any_call_is_replayed_exactly_once(
    after: bool,
) -> None:
    """The commit of a batch is killed before, or after, each of its calls in turn. The query starts
    again with the same batch, then goes on with the next."""
    for number in places():
        world, run = prepared()
        how = {"after": die} if after else {"before": die}
        with pytest.raises(Killed):
            commit(world, run, 7, Watched(world.store, number, **how))  # type: ignore[arg-type]
        publish(world, 7)
        publish(world, 8)
        assert rows(world) == ["6", "6", "7", "7", "8", "8"], number
        clean(world)
        assert rows(world) == ["6", "6", "7", "7", "8", "8"], number
        assert not jobs_left(world), number


@pytest.mark.parametrize("who", ["recover", "cleanup"])
def test_an_operator_who_finishes_the_dead_driver_s_job_writes_the_ledger(who: str) -> None:
    """As above; an operator comes before the query starts again. Without the ledger, the next run
    would publish the batch once more."""
    for number in places():
        world, run = prepared()
        with pytest.raises(Killed):
            commit(world, run, 7, Watched(world.store, number, die))
        if who == "cleanup":
            clean(world)
        else:
            world.recover(run[0].job.id)
        publish(world, 7)
        assert rows(world) == ["6", "6", "7", "7"], number


def test_an_answer_that_is_lost_at_any_call_counts_once() -> None:
    """Each call of a commit takes effect in turn, and nobody is told; the query goes on, with the
    same batch if the commit failed."""
    failed = 0
    for number in places():
        world, run = prepared()
        try:
            report = commit(world, run, 7, Watched(world.store, number, after=lose_the_answer))
            assert (report.outcome, report.skipped) == ("committed", False)
        except mc.MagicError:
            failed += 1
        publish(world, 7)
        publish(world, 8)
        assert rows(world) == ["6", "6", "7", "7", "8", "8"], number
    assert failed < 10


def test_a_driver_that_is_paused_at_any_call_publishes_nothing_twice() -> None:
    """An old driver stands still before each call of its commit in turn, while a new driver runs
    the same batch and the next one. The old one is told the truth: its batch is published by it, or
    by the other; or that it was aborted."""
    told = set()
    for number in places():
        world, run = prepared()

        def new_driver(world: World = world) -> None:
            publish(world, 7)
            publish(world, 8)

        report = commit(world, run, 7, Watched(world.store, number, new_driver))
        told.add((report.outcome, report.skipped))
        assert rows(world) == ["6", "6", "7", "7", "8", "8"], number
        by_it = any(run[0].job.id in name for name in world.data())
        assert by_it == (report.outcome == "committed") == (not report.skipped), number
    assert told == {("committed", False), ("aborted", True)}


@pytest.mark.parametrize("committer", ["v1", "v2"])
def test_the_classic_committers_take_no_batch(committer: str, tmp_path: Any) -> None:
    """What a dead run has made visible stays, and the next run writes it again."""
    with pytest.raises(mc.OptionError, match="no batch of a streaming query exactly once"):
        mc.start(tmp_path.as_uri(), committer=committer, checkpoint="file:///checkpoint")
    job = mc.start(tmp_path.as_uri(), committer=committer, accept="results", track="memory")
    with pytest.raises(mc.OptionError, match="no batch of a streaming query exactly once"):
        job.commit([], expect=0, batch=mc.StreamBatch("query", 1))
    job.abort()


def test_a_link_in_the_ledgers_place_is_not_followed(tmp_path: Any) -> None:
    """Whoever may write there may have made one that leads to other data."""
    dest, elsewhere = tmp_path / "table", tmp_path / "elsewhere"
    dest.mkdir()
    elsewhere.mkdir()
    (dest / "__magic_stream").symlink_to(elsewhere)
    job = mc.start(dest.as_uri(), accept="results", track="memory")
    with pytest.raises(mc.StoreError, match="is a link"):
        job.commit([], expect=0, batch=mc.StreamBatch("query", 1))
    assert not list(elsewhere.iterdir())
    job.abort()


@pytest.mark.parametrize("committer", ["magic", "manifest"])
def test_a_batch_on_a_real_disk_is_published_once(committer: str, tmp_path: Any) -> None:
    """By the calls that users make."""
    dest = tmp_path.as_uri()
    reports = []
    for _ in range(2):
        job = mc.start(
            dest,
            accept="results",
            track="memory",
            checkpoint="file:///checkpoint",
            committer=committer,
        )
        with job.task("0") as task, task.open("a.csv", "w", unique=True) as file:
            file.write("1")
        reports.append(job.commit([task.result], batch=mc.StreamBatch(QUERY, 7)))
    assert [report.skipped for report in reports] == [False, True]
    state = mc.read_stream(dest, QUERY)
    assert state is not None
    assert (state.done, state.done_by) == (7, reports[0].uuid)
    assert len([p for p in tmp_path.iterdir() if p.suffix == ".csv"]) == 1
    left = mc.start(dest, checkpoint="file:///checkpoint")
    assert [one.job_id for one in mc.abort_stream(dest, "file:///checkpoint")] == [left.id]


def test_two_queries_whose_names_differ_in_case_do_not_share_a_ledger() -> None:
    """On a disk that takes `A` and `a` for one name, the second query is refused."""
    world = World()
    upper = ledgers(world).read("A")
    assert ledgers(world).write(upper, Ledger("A", "nonce", claim=Claim("job", "0" * 32, 0)))
    (path,) = world.root.glob("__magic_stream/*A*")
    path.rename(path.with_name(path.name.replace("A", "a")))
    with pytest.raises(mc.FormatError, match="the ledger of another query"):
        ledgers(world).read("a")

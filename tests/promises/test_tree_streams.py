"""Micro-batches on a file tree are published exactly once: whoever dies, loses an answer, or is
paused, at whichever call of the file system, and however often a batch is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

import magic_committer as mc
from magic_committer.commit.batches import claim_batch
from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.committers.manifest.ledgers import VERSIONS_KEPT, TreeLedgers
from magic_committer.errors import BatchUnsettled, PermissionDenied, Unanswered
from magic_committer.file_trees.base import walk
from magic_committer.maintenance.cleanup import Limits
from magic_committer.maintenance.streams import abort_jobs_of_tree, stream_state
from magic_committer.maintenance.trees import (
    TreeCleaning,
    force_abort_tree,
    inspect_tree_job,
    recover_tree,
)
from magic_committer.options import Options
from magic_committer.protocol.ledger import Claim, Ledger, hash_of
from magic_committer.protocol.record import TaskCommit, Terms
from tests.tree_jobs import URL, Killed, Watched, World, die, lose_the_answer, write

QUERY = "7bd2f0b6-9e0c-4a6e-8d4c-0a3f4f7f6f10"
LEDGER = f"__magic_stream/{QUERY}"
CHECKPOINT = hash_of("file:///checkpoint")

Run = tuple[ManifestCommitter, list[TaskCommit]]


def start(world: World, tree: object | None = None, **terms: Any) -> ManifestCommitter:
    """A job of the query."""
    said = {"track": "memory", "accept": "results", "committer": "manifest", "mark_success": False}
    return ManifestCommitter.start(
        world.process(tree), URL, Terms(**{**said, **terms}), Options(), checkpoint=CHECKPOINT
    )


def run_of(world: World, number: int, **terms: Any) -> Run:
    """A run of a batch whose tasks have ended: a job with two files of their own names."""
    job = start(world, **terms)
    body = str(number).encode()
    return job, [write(job, t, {f"{number}-{t}-{job.job.id}.csv": body}) for t in ("0", "1")]


def commit(world: World, run: Run, number: int, tree: object | None = None) -> mc.JobReport:
    """What the driver calls, in a process of its own that sees the tree in its way."""
    job, results = run
    return world.again(job, tree).commit_job(results, batch=mc.StreamBatch(QUERY, number))


def publish(world: World, number: int, **terms: Any) -> mc.JobReport:
    """A whole run of a batch."""
    return commit(world, run_of(world, number, **terms), number)


def rows(world: World) -> list[str]:
    """What readers see, in order: each batch twice, if it is published once, by two tasks."""
    return sorted(body.decode() for body in world.data().values())


def ledger(world: World) -> Ledger:
    """What the ledger says."""
    found = TreeLedgers(world.parts()).read(QUERY).ledger
    assert found is not None
    return found


def prepared(directories: bool = True) -> tuple[World, Run]:
    """A world with a published batch 6, and a run of batch 7 that is to be committed."""
    world = World(directories=directories)
    publish(world, 6)
    return world, run_of(world, 7)


def places(directories: bool = True) -> Iterator[int]:
    """Every call of the file system in the commit of a second batch."""
    world, run = prepared(directories)
    watched = Watched(world.tree)
    commit(world, run, 7, watched)
    assert watched.count > 20
    return iter(range(1, watched.count + 1))


def clean(world: World) -> None:
    """A cleanup for which everything is old."""
    limits = Limits(0.0, 0.0, 0.0, forget_given_after=1e9)
    for _ in range(2):  # one ends what is left, the next one forgets it
        assert not TreeCleaning(world.parts(), limits, dry_run=False).run().errors


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
    assert not world.control()


def test_batches_follow_each_other() -> None:
    """Each is published, numbers may be left out, and the ledger tells the last one for people."""
    world = World()
    for number in (0, 1, 5):
        report = publish(world, number)
    assert rows(world) == ["0", "0", "1", "1", "5", "5"]
    told = ledger(world)
    assert (told.done, told.done_by, told.claim) == (5, report.uuid, None)
    state = stream_state(TreeLedgers(world.parts()), URL, QUERY)
    assert state == mc.StreamState(QUERY, URL, 5, report.uuid, checkpoint=CHECKPOINT)
    assert stream_state(TreeLedgers(world.parts()), URL, "another") is None


def test_an_older_batch_is_not_published_after_a_newer_one() -> None:
    """A zombie of an old driver comes late."""
    world = World()
    old = run_of(world, 6)
    publish(world, 7)
    assert commit(world, old, 6).skipped
    assert rows(world) == ["7", "7"]


@pytest.mark.parametrize("directories", [True, False], ids=["directories", "no directories"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_driver_that_dies_at_any_call_is_replayed_exactly_once(
    after: bool, directories: bool
) -> None:
    """The commit of a batch is killed before, or after, each of its calls in turn. The query starts
    again with the same batch, then goes on with the next."""
    for number in places(directories):
        world, run = prepared(directories)
        how = {"after": die} if after else {"before": die}
        with pytest.raises(Killed):
            commit(world, run, 7, Watched(world.tree, number, **how))  # type: ignore[arg-type]
        publish(world, 7)
        publish(world, 8)
        assert rows(world) == ["6", "6", "7", "7", "8", "8"], number
        clean(world)
        assert rows(world) == ["6", "6", "7", "7", "8", "8"], number
        assert not (world.control() and directories), number


@pytest.mark.parametrize("who", ["recover", "cleanup"])
def test_an_operator_who_finishes_the_dead_driver_s_job_writes_the_ledger(who: str) -> None:
    """As above; an operator comes before the query starts again. Without the ledger, the next run
    would publish the batch once more."""
    for number in places():
        world, run = prepared()
        with pytest.raises(Killed):
            commit(world, run, 7, Watched(world.tree, number, die))
        if who == "cleanup":
            clean(world)
        else:
            recover_tree(world.parts(), run[0].job.id, dead_after=0.0)
        publish(world, 7)
        assert rows(world) == ["6", "6", "7", "7"], number


def test_an_answer_that_is_lost_at_any_call_counts_once() -> None:
    """Each call of a commit takes effect in turn, and nobody is told; the query goes on, with the
    same batch if the commit failed."""
    failed = 0
    for number in places():
        world, run = prepared()
        try:
            report = commit(world, run, 7, Watched(world.tree, number, after=lose_the_answer))
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

        report = commit(world, run, 7, Watched(world.tree, number, new_driver))
        told.add((report.outcome, report.skipped))
        assert rows(world) == ["6", "6", "7", "7", "8", "8"], number
        by_it = any(run[0].job.id in name for name in world.data())
        assert by_it == (report.outcome == "committed") == (not report.skipped), number
    assert told == {("committed", False), ("aborted", True)}


def test_a_driver_that_is_paused_for_many_batches_wins_no_version_that_was_deleted() -> None:
    """Old versions of the ledger are deleted. A driver that stood still before it wrote one creates
    it, for its name is free again, and is told that another batch is far ahead."""
    world, run = prepared()
    watched: Watched

    def many() -> None:
        for number in range(7, 7 + VERSIONS_KEPT):
            publish(world, number)

    watched = Watched(
        world.tree, before=many, on=lambda verb, path: verb == "create" and path.startswith(LEDGER)
    )
    assert commit(world, run, 7, watched).skipped
    assert rows(world).count("7") == 2
    assert ledger(world).done == 6 + VERSIONS_KEPT


def versions(world: World) -> list[int]:
    """The numbers of the ledger's versions."""
    found = [e.name for e in walk(world.tree, LEDGER)]
    return sorted(int(name.removeprefix("_ledger-").removesuffix(".json")) for name in found)


def test_a_ledger_of_many_batches_stays_small() -> None:
    """The first version stays, for it says that there is a ledger; and some behind the newest."""
    world = World()
    for number in range(VERSIONS_KEPT):
        publish(world, number)
    newest = 2 * VERSIONS_KEPT
    assert versions(world) == [1, *range(newest - VERSIONS_KEPT, newest + 1)]


def test_a_listing_that_lags_changes_nothing() -> None:
    """A listing shows none of the last versions; they are read by their names."""
    for hidden in range(1, VERSIONS_KEPT, 5):
        world = World()
        for number in range(VERSIONS_KEPT):
            publish(world, number)
        newest = versions(world)[-1]

        class Lagging(Watched):
            def list(self, directory: str, newest: int = newest, hidden: int = hidden) -> Any:
                found = list(self._tree.list(directory))
                late = {f"_ledger-{n}.json" for n in range(newest - hidden + 1, newest + 99)}
                return iter([entry for entry in found if entry.name not in late])

        again = run_of(world, VERSIONS_KEPT - 1)
        assert commit(world, again, VERSIONS_KEPT - 1, Lagging(world.tree)).skipped, hidden
        follows = run_of(world, VERSIONS_KEPT)
        assert not commit(world, follows, VERSIONS_KEPT, Lagging(world.tree)).skipped, hidden
        assert ledger(world).done == VERSIONS_KEPT


def test_a_listing_that_shows_nothing_is_not_believed() -> None:
    """The first version is asked for by its name."""
    world = World()
    publish(world, 7)

    class Blind(Watched):
        def list(self, directory: str) -> Any:
            return iter(()) if directory == LEDGER else self._tree.list(directory)

    assert commit(world, run_of(world, 7), 7, Blind(world.tree)).skipped


def test_a_run_that_cannot_be_settled_stops_the_next() -> None:
    """The job before is decided, and its files cannot be renamed now: nothing is decided, the
    remedy names that job, and later the batch is there once."""
    world = World()
    first = run_of(world, 7)
    decided = Watched(
        world.tree, after=die, on=lambda v, p: v == "create" and p.endswith("_job-2.json")
    )
    with pytest.raises(Killed):
        commit(world, first, 7, decided)

    class Refusing(Watched):
        def rename(self, source: str, target: str, **more: Any) -> None:
            if target.endswith(".csv"):
                raise PermissionDenied("no")
            self._tree.rename(source, target, **more)

    run = run_of(world, 7)
    with pytest.raises(BatchUnsettled) as caught:
        commit(world, run, 7, Refusing(world.tree))
    (remedy,) = caught.value.remedies
    assert (remedy.call, remedy.job_id) == ("recover", first[0].job.id)
    assert commit(world, run, 7).skipped
    assert rows(world) == ["7", "7"]


def test_a_ledger_that_cannot_be_written_leaves_the_job_unfinished() -> None:
    """All files are visible, and the call says what is missing; the next run of the batch finishes
    the job, and publishes nothing more."""
    world, run = prepared()

    class Refusing(Watched):
        writes = 0

        def create(self, path: str, data: bytes) -> None:
            if path.startswith(LEDGER):
                self.writes += 1
                if self.writes > 1:
                    raise PermissionDenied("no")
            self._tree.create(path, data)

    with pytest.raises(mc.CommitIncomplete) as caught:
        commit(world, run, 7, Refusing(world.tree))
    assert (caught.value.outstanding, caught.value.state) == ((LEDGER,), "completed")
    assert rows(world) == ["6", "6", "7", "7"]
    assert publish(world, 7).skipped
    assert rows(world) == ["6", "6", "7", "7"]
    found = inspect_tree_job(world.parts(), run[0].job.id, 0.0)
    assert found is not None
    assert (found.state, found.outcome, found.batch) == ("closed", "committed", 7)


def broken(world: World) -> None:
    """Somebody writes another file over the newest version."""
    newest = f"{LEDGER}/_ledger-{versions(world)[-1]}.json"
    world.tree.remove(newest)
    world.tree.create(newest, b"{}")


def test_an_operator_may_take_a_broken_ledger_as_it_is() -> None:
    """Somebody has overwritten the ledger: the job cannot be finished until an operator says so."""
    world, run = prepared()
    watched = Watched(
        world.tree, before=lambda: broken(world), on=lambda v, p: v == "rename" and "/tasks/" in p
    )
    with pytest.raises(mc.CommitIncomplete, match="does not say yet that batch 7"):
        commit(world, run, 7, watched)
    recovery = recover_tree(world.parts(), run[0].job.id, dead_after=0.0, accept=[LEDGER])
    assert (recovery.state, recovery.outcome) == ("closed", "committed")


def test_a_job_that_is_given_up_leaves_its_word_in_the_ledger() -> None:
    """A driver dies before it says that its batch is published; its job is given up. The batch is
    not run again."""
    world, run = prepared()
    seen: list[str] = []

    def second(verb: str, path: str) -> bool:
        if verb == "create" and path.startswith(LEDGER):
            seen.append(path)
        return len(seen) == 2

    with pytest.raises(Killed):
        commit(world, run, 7, Watched(world.tree, before=die, on=second))
    told = force_abort_tree(world.parts(), run[0].job.id, dead_after=0.0)
    assert (told.outcome, told.why) == ("committed", "")
    assert ledger(world).done == 7
    assert publish(world, 7).skipped


def test_a_commit_that_is_called_again_says_the_same() -> None:
    """By the ledger, for the job's record is gone."""
    world, run = prepared()
    first = commit(world, run, 7)
    again = commit(world, run, 7)
    assert (first.outcome, again.outcome, again.batch) == ("committed", "committed", 7)
    other = run_of(world, 7)
    assert commit(world, other, 7).skipped
    assert commit(world, other, 7).skipped


def test_a_job_is_committed_as_one_batch() -> None:
    """It is not finished as another one."""
    world, run = prepared()
    watched = Watched(
        world.tree, after=die, on=lambda v, p: v == "create" and p.endswith("_job-2.json")
    )
    with pytest.raises(Killed):
        commit(world, run, 7, watched)
    with pytest.raises(mc.OptionError, match=r"is committed as batch 7 .*, not as batch 8"):
        commit(world, run, 8)


def test_a_job_of_a_query_is_not_committed_without_its_batch() -> None:
    """It would be published beside the ledger."""
    world, (job, results) = prepared()
    with pytest.raises(mc.OptionError, match="is committed as a batch of it only"):
        job.commit_job(results)
    assert commit(world, (job, results), 7).outcome == "committed"


def test_an_abort_without_messages_finds_the_query_s_running_jobs() -> None:
    """By the hash of its checkpoint, and none of another query."""
    world, run = prepared()
    other = world.start()
    (report,) = abort_jobs_of_tree(world.parts(), CHECKPOINT)
    assert (report.job_id, report.outcome) == (run[0].job.id, "aborted")
    assert abort_jobs_of_tree(world.parts(), CHECKPOINT) == []
    assert inspect_tree_job(world.parts(), other.job.id, 0.0) is not None


def test_an_abort_passes_over_a_job_that_ends_at_this_moment() -> None:
    """Its own driver commits it, at each call of the abort in turn."""
    for number in range(1, 40):
        world, run = prepared()

        def end(world: World = world, run: Run = run) -> None:
            commit(world, run, 7)

        watched = Watched(world.tree, number, end)
        try:
            abort_jobs_of_tree(world.parts(watched), CHECKPOINT)
        except mc.JobNotRunning:
            pytest.fail("an abort of a query's jobs fails because one of them has ended")
        assert rows(world) in (["6", "6"], ["6", "6", "7", "7"])


@pytest.mark.parametrize("number", [6, 7])
def test_a_batch_in_complete_mode_replaces_the_one_before(number: int) -> None:
    """Each batch is the query's whole result."""
    world = World()
    publish(world, 5, mode="replace")
    publish(world, number, mode="replace")
    assert rows(world) == [str(number)] * 2


def test_a_query_in_complete_mode_goes_on_after_a_crash() -> None:
    """Its jobs exclude each other, and a crashed one is in the way: the start settles it."""
    for number in places():
        world = World()
        publish(world, 6, mode="replace")
        run = run_of(world, 7, mode="replace")
        with pytest.raises(Killed):
            commit(world, run, 7, Watched(world.tree, number, die))
        publish(world, 7, mode="replace")
        assert rows(world) == ["7", "7"], number


def test_whoever_takes_a_job_by_its_id_must_name_its_checkpoint() -> None:
    """A job of another query, or of none, is not his."""
    world = World()
    said: dict[str, Any] = {"track": "memory", "accept": "results", "committer": "manifest"}

    def take(checkpoint: str) -> ManifestCommitter:
        return ManifestCommitter.start(
            world.process(), URL, Terms(**said), Options(), "night", join=True,
            checkpoint=checkpoint,
        )  # fmt: skip

    first = take(CHECKPOINT)
    assert take(CHECKPOINT).job.uuid == first.job.uuid
    with pytest.raises(mc.JobExists, match="belongs to another streaming query, or to none"):
        take("")


def test_a_ledger_of_another_query_is_refused() -> None:
    """A copied one would make a query skip its batches."""
    world = World()
    publish(world, 7)
    world.put(
        "__magic_stream/other/_ledger-1.json", world.tree.read(f"{LEDGER}/_ledger-2.json", 999)
    )
    with pytest.raises(mc.FormatError, match="the ledger of another query"):
        TreeLedgers(world.parts()).read("other")


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


def test_a_batch_on_a_real_disk_is_published_once(tmp_path: Any) -> None:
    """By the calls that users make."""
    dest = tmp_path.as_uri()
    reports = []
    for _ in range(2):
        job = mc.start(dest, accept="results", track="memory", checkpoint="file:///checkpoint")
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


def test_others_that_keep_claiming_stop_a_run() -> None:
    """Two runs of a query that take the claim from each other for ever: one of them gives up."""
    world, (job, _) = prepared()
    ledgers = TreeLedgers(world.parts())

    def another(_: Claim) -> bool:
        stored = ledgers.read(QUERY)
        assert stored.ledger is not None
        claim = Claim(world.draw(), world.draw(), 7)
        return not ledgers.write(stored, stored.ledger.claimed(claim, world.draw()))

    another(Claim("", "", 0))
    with pytest.raises(BatchUnsettled, match="other runs of the query keep changing its ledger"):
        claim_batch(ledgers, world.draw, job.job, mc.StreamBatch(QUERY, 7), another)


def test_a_ledger_that_gives_no_answer_is_unanswered() -> None:
    """Neither a claim nor its absence is told."""
    world = World()
    publish(world, 6)

    class Silent(Watched):
        def create(self, path: str, data: bytes) -> None:
            raise Unanswered("no answer", operation="create")

    stored = TreeLedgers(world.parts()).read(QUERY)
    claimed = ledger(world).claimed(Claim("a", "0" * 32, 7), "nonce")
    with pytest.raises(Unanswered):
        TreeLedgers(world.parts(Silent(world.tree))).write(stored, claimed)
    assert orjson.loads(world.tree.read(f"{LEDGER}/_ledger-2.json", 999))["done"] == 6


def test_ctrl_c_while_another_run_is_settled_tells_of_both_jobs() -> None:
    """A run dies once it is decided; the next one, which finishes it, is interrupted at each of its
    calls. The note says what is known of its own job, and no report is another job's."""

    def stop() -> None:
        raise KeyboardInterrupt

    both = 0
    for number in range(1, 200):
        world, dead = prepared()
        decided = Watched(
            world.tree, after=die, on=lambda v, p: v == "create" and p.endswith("_job-2.json")
        )
        with pytest.raises(Killed):
            commit(world, dead, 7, decided)
        run = run_of(world, 7)
        try:
            commit(world, run, 7, Watched(world.tree, number, stop))
        except KeyboardInterrupt as error:
            notes = " ".join(error.__notes__)
            assert run[0].job.id in notes, number
            both += dead[0].job.id in notes
            report = getattr(error, "report", None)
            assert report is None or report.job_id == run[0].job.id, number
        else:
            break
    assert both >= 5


def test_ctrl_c_while_a_run_is_passed_over_does_not_say_that_it_was_not_decided() -> None:
    """Its batch is published already, and it is being aborted."""

    def stop() -> None:
        raise KeyboardInterrupt

    told = []
    for number in range(1, 200):
        world, _ = prepared()
        run = run_of(world, 6)
        try:
            commit(world, run, 6, Watched(world.tree, number, stop))
        except KeyboardInterrupt as error:
            found = inspect_tree_job(world.parts(), run[0].job.id, 0.0)
            if found is None or found.state != "running":
                told.append(" ".join(error.__notes__))
        else:
            break
    assert len(told) >= 5
    assert not [notes for notes in told if "was not decided" in notes]

"""What a hostile reader tried on streams of file systems: processes that stand still twice, files
that somebody else has put there, calls that meet a driver that lives."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.committers.manifest import ManifestCommitter
from magic_committer.committers.manifest.ledgers import VERSIONS_KEPT, TreeLedgers
from magic_committer.committers.manifest.runs import runs_of, settle_runs
from magic_committer.errors import Unanswered
from magic_committer.file_trees.base import walk
from magic_committer.file_trees.local import LocalTree
from magic_committer.maintenance.cleanup import Limits
from magic_committer.maintenance.streams import abort_jobs_of_tree
from magic_committer.maintenance.trees import (
    TreeCleaning,
    abort_tree,
    force_abort_tree,
    inspect_tree_job,
    recover_tree,
)
from magic_committer.options import Options
from magic_committer.protocol.ledger import Claim, Ledger, hash_of
from magic_committer.protocol.record import TaskCommit, Terms
from tests.tree_jobs import URL, Killed, Watched, World, die, write

QUERY = "7bd2f0b6-9e0c-4a6e-8d4c-0a3f4f7f6f10"
LEDGER = f"__magic_stream/{QUERY}"
CHECKPOINT = hash_of("file:///checkpoint")

Run = tuple[ManifestCommitter, list[TaskCommit]]


def run_of(world: World, number: int, **terms: Any) -> Run:
    """A run of a batch whose task has ended."""
    said = {"track": "memory", "accept": "results", "committer": "manifest", "mark_success": False}
    job = ManifestCommitter.start(
        world.process(), URL, Terms(**{**said, **terms}), Options(), checkpoint=CHECKPOINT
    )
    return job, [write(job, "0", {f"{number}-{job.job.id}.csv": str(number).encode()})]


def commit(world: World, run: Run, number: int, tree: object | None = None) -> mc.JobReport:
    """What the driver calls, in a process of its own that sees the tree in its way."""
    job, results = run
    return world.again(job, tree).commit_job(results, batch=mc.StreamBatch(QUERY, number))


def publish(world: World, number: int, **terms: Any) -> mc.JobReport:
    """A whole run of a batch."""
    return commit(world, run_of(world, number, **terms), number)


def rows(world: World) -> list[str]:
    """What readers see, in order."""
    return sorted(body.decode() for body in world.data().values())


def decided(verb: str, path: str) -> bool:
    """The call that decides a job."""
    return verb == "create" and path.endswith("_job-2.json")


class SecondWrite:
    """The second create of a version of the ledger: the one that says that it is published."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, verb: str, path: str) -> bool:
        self.seen += verb == "create" and path.startswith(LEDGER)
        return self.seen == 2


def test_a_version_that_a_paused_process_made_anew_is_not_believed() -> None:
    """One process of a job stands still while it reads the ledger, another one before it creates a
    version. Many batches pass, both names are deleted, the second one wakes and creates its claim
    anew; then the first one wakes. It reads that claim by its name, and must not decide by it."""
    world = World()
    publish(world, 6)
    job, results = run_of(world, 7)
    before = TreeLedgers(world.parts()).read(QUERY)
    assert before.ledger is not None
    mine = before.ledger.claimed(Claim(job.job.id, job.job.uuid, 7), world.draw())
    anew = f"{LEDGER}/_ledger-{int(before.version) + 1}.json"

    def meanwhile() -> None:
        for number in range(7, 7 + VERSIONS_KEPT):
            publish(world, number)
        assert world.tree.stat(anew) is None
        world.tree.create(anew, mine.encode())

    watched = Watched(world.tree, before=meanwhile, on=lambda v, p: (v, p) == ("read", anew))
    assert commit(world, (job, results), 7, watched).skipped
    assert rows(world).count("7") == 1


@pytest.mark.parametrize("newest", ["9" * 18, "9" * 40])
def test_a_version_with_a_great_number_does_not_bring_the_first_one_back(newest: str) -> None:
    """Somebody has put a version far ahead: the ledger goes on behind it, however many digits the
    next number has, and no batch is published again."""
    world = World()
    publish(world, 6)
    ahead = world.tree.read(f"{LEDGER}/_ledger-2.json", 999)
    world.tree.create(f"{LEDGER}/_ledger-{newest}.json", ahead)
    for number in range(7, 7 + VERSIONS_KEPT):
        publish(world, number)
        assert publish(world, number).skipped
        assert publish(world, 6).skipped
    assert len(rows(world)) == 1 + VERSIONS_KEPT


@pytest.mark.parametrize("finished", ["by recover", "not at all"])
def test_a_job_that_completes_while_it_is_given_up_leaves_its_word_in_the_ledger(
    finished: str,
) -> None:
    """force_abort sees a decided job; before it can be undone, another process makes its files
    visible, and dies before the ledger says so. The batch is not run again."""
    world = World()
    run = run_of(world, 7)
    with pytest.raises(Killed):
        commit(world, run, 7, Watched(world.tree, after=die, on=decided))

    def complete() -> None:
        if finished == "by recover":
            recover_tree(world.parts(), run[0].job.id, dead_after=0.0)
            return
        with pytest.raises(Killed):
            dying = Watched(
                world.tree, before=die, on=lambda v, p: v == "create" and p.startswith(LEDGER)
            )
            recover_tree(world.parts(dying), run[0].job.id, dead_after=0.0)

    watched = Watched(
        world.tree, before=complete, on=lambda v, p: v == "create" and p.endswith("_job-3.json")
    )
    told = force_abort_tree(world.parts(watched), run[0].job.id, dead_after=0.0)
    assert told.outcome == "committed"
    assert publish(world, 7).skipped
    assert rows(world) == ["7"]


def test_a_job_that_is_publishing_is_not_given_up_because_a_disk_does_not_answer() -> None:
    """Its driver may live: its record would be taken away between two renames."""
    world = World()
    run = run_of(world, 7)
    with pytest.raises(Killed):
        commit(world, run, 7, Watched(world.tree, after=die, on=decided))

    class Full(Watched):
        def create(self, path: str, data: bytes) -> None:
            raise Unanswered("no space left", operation="create")

    with pytest.raises(mc.JobTooYoung, match="its files are being published"):
        force_abort_tree(world.parts(Full(world.tree)), run[0].job.id, dead_after=3600.0)
    recover_tree(world.parts(), run[0].job.id, dead_after=0.0)
    assert publish(world, 7).skipped
    assert rows(world) == ["7"]


def test_a_create_that_took_effect_is_not_told_as_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system turns read-only, or the directory lets nobody delete, after the file was linked
    into place: a decision is never told as a refusal."""
    tree = LocalTree(tmp_path)

    def refuse(path: Any) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(Unanswered, match="Operation not permitted"):
        tree.create("_job-2.json", b"decided")
    assert tree.read("_job-2.json", 99) == b"decided"


def test_a_claim_whose_job_has_no_record_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Another committer has deleted `_temporary` while a batch was being published: its driver is
    told that nobody knows; the next run publishes the batch, and warns that rows may be twice."""
    world = World()
    run = run_of(world, 7)

    def delete() -> None:
        for entry in sorted(walk(world.tree, "_temporary"), key=lambda e: e.path, reverse=True):
            if entry.kind == "directory":
                world.tree.remove_directory(entry.path)
            else:
                world.tree.remove(entry.path)

    watched = Watched(
        world.tree, before=delete, on=lambda v, p: v == "create" and p.endswith("_job-3.json")
    )
    with pytest.raises(mc.OutcomeUnknown):
        commit(world, run, 7, watched)
    assert rows(world) == ["7"]
    with caplog.at_level(logging.WARNING, "magic_committer"):
        assert publish(world, 7).outcome == "committed"
    (told,) = [r.getMessage() for r in caplog.records if "has no record" in r.getMessage()]
    assert run[0].job.id in told
    assert "batch 7" in told
    assert rows(world) == ["7", "7"]
    caplog.clear()
    publish(world, 8)
    assert not caplog.records


@pytest.mark.parametrize("what", ["directory", "link", "cut"])
def test_what_is_no_version_in_a_version_s_place_is_told(what: str, tmp_path: Path) -> None:
    """A directory, a link that leads nowhere, half a file: the query stops, and the error names
    the path."""
    ledger = tmp_path / "__magic_stream" / QUERY
    ledger.mkdir(parents=True)
    there = ledger / "_ledger-3.json"
    if what == "directory":
        there.mkdir()
    elif what == "link":
        there.symlink_to(tmp_path / "nowhere")
    else:
        there.write_bytes(b'{"version": 1, "que')
    with pytest.raises(mc.MagicError, match=r"_ledger-3\.json"):
        mc.read_stream(tmp_path.as_uri(), QUERY)


@pytest.mark.parametrize("query", [".", "..", "__magic_stream", "a/b", ""])
def test_odd_names_of_queries_lead_nowhere_else(query: str, tmp_path: Path) -> None:
    """They are refused."""
    with pytest.raises(mc.PathError):
        mc.read_stream(tmp_path.as_uri(), query)


def test_a_query_may_be_named_like_a_version(tmp_path: Path) -> None:
    """It has a directory of its own."""
    for query in ("_ledger-1.json", "_ledger-1.json.tmp"):
        for skipped in (False, True):
            job = mc.start(tmp_path.as_uri(), accept="results", track="memory")
            report = job.commit([], expect=0, batch=mc.StreamBatch(query, 0))
            assert report.skipped == skipped


def test_two_queries_whose_names_differ_in_case_do_not_share_a_ledger() -> None:
    """On a disk that takes `A` and `a` for one name, the second query is refused."""
    world = World()

    class Folding(Watched):
        def __getattr__(self, name: str) -> Any:
            found = super().__getattr__(name)
            if name not in ("stat", "list", "read", "create", "make_directory"):
                return found
            return lambda path, *more: found(path.lower(), *more)

    parts = world.parts(Folding(world.tree))
    ledgers = TreeLedgers(parts)
    upper = ledgers.read("A")
    assert ledgers.write(upper, Ledger("A", "nonce", claim=Claim("job", "0" * 32, 0)))
    with pytest.raises(mc.FormatError, match="the ledger of another query"):
        ledgers.read("a")


def test_a_job_that_only_claimed_is_no_data_for_mode_fail() -> None:
    """Its ledger stays; the next run of the first batch finds an empty destination."""
    world = World()
    run = run_of(world, 0, mode="fail")
    with pytest.raises(Killed):
        commit(world, run, 0, Watched(world.tree, before=die, on=decided))
    assert publish(world, 0, mode="fail").outcome == "committed"
    assert rows(world) == ["0"]


def test_no_task_writes_into_a_ledger(tmp_path: Path) -> None:
    """A file of a job is never taken for a version."""
    with mc.start(tmp_path.as_uri()) as job:
        with pytest.raises(mc.PathError), job.task("0") as task:
            task.open(f"{LEDGER}/_ledger-9.json")
        job.abort()


# What no test saw, when its line was taken away ---------------------------------------------------


def test_the_directories_of_a_ledger_last_before_its_first_version() -> None:
    """After a power cut, a batch that was published is known to be."""
    world = World()
    calls: list[tuple[str, Any]] = []

    class Noting(Watched):
        def sync(self, files: Any, directories: Any) -> None:
            calls.append(("sync", set(directories)))
            self._tree.sync(files, directories)

        def create(self, path: str, data: bytes) -> None:
            calls.append(("create", path))
            self._tree.create(path, data)

    commit(world, run_of(world, 0), 0, Noting(world.tree))
    first = calls.index(("create", f"{LEDGER}/_ledger-1.json"))
    assert ("sync", {LEDGER, "__magic_stream", ""}) in calls[:first]


def test_a_version_whose_create_is_not_answered_is_created_again() -> None:
    """It took no effect, twice; between the tries the process waits, longer each time."""
    world = World()
    publish(world, 6)

    class Deaf(Watched):
        tries = 0

        def create(self, path: str, data: bytes) -> None:
            self.tries += 1
            if self.tries < 3:
                raise Unanswered("no answer", operation="create")
            self._tree.create(path, data)

    deaf = Deaf(world.tree)
    ledgers = TreeLedgers(world.parts(deaf))
    stored, began = ledgers.read(QUERY), world.clock.seconds
    assert stored.ledger is not None
    claim = Claim("job", "0" * 32, 7)
    assert ledgers.write(stored, stored.ledger.claimed(claim, "nonce"))
    assert deaf.tries == 3
    assert world.clock.seconds - began > 0.3


def test_a_record_that_nobody_can_read_is_no_run_of_a_query() -> None:
    """Somebody has put it there: the query starts all the same, and ends its own crashed run."""
    world = World()
    run = run_of(world, 7, mode="replace")
    other = world.start(mode="append").job
    path = f"_temporary/manifest_{other.uuid}/_job-1.json"
    assert world.tree.stat(path) is not None
    world.put(path, b"{}")
    (seen,) = runs_of(world.parts(), CHECKPOINT)
    assert seen.record.uuid == run[0].job.uuid


def test_a_run_that_has_ended_is_not_settled_again() -> None:
    """Its record is closed: it is there for a day, and costs each start only one look."""
    world = World()
    run = run_of(world, 7)
    recover_tree(world.parts(), run[0].job.id, dead_after=0.0)
    assert world.control()
    assert runs_of(world.parts(), CHECKPOINT) == []


@pytest.mark.parametrize("path", ["_job-1.json", "_job-2.json"])
def test_a_run_that_ends_while_it_is_settled_does_not_stop_the_next(path: str) -> None:
    """Its driver lives, and commits it at this moment."""
    world = World()
    run = run_of(world, 7)
    verb = "stat" if path == "_job-1.json" else "create"

    def end() -> None:
        commit(world, run, 7)

    watched = Watched(world.tree, before=end, on=lambda v, p: v == verb and p.endswith(path))
    settle_runs(world.parts(watched), CHECKPOINT)
    assert rows(world) == ["7"]


def test_an_overtaken_run_says_what_has_become_of_its_record() -> None:
    """Another run has settled it, and published the batch: its record is closed."""
    world = World()
    run = run_of(world, 7)
    with pytest.raises(Killed):
        commit(world, run, 7, Watched(world.tree, before=die, on=decided))
    publish(world, 7)
    told = commit(world, run, 7)
    assert (told.outcome, told.state, told.skipped) == ("aborted", "closed", True)


def test_a_run_that_is_skipped_while_its_job_is_given_up_is_told_so() -> None:
    """An operator gives the job up at the moment when its own driver would abort it."""
    world = World()
    run = run_of(world, 7)
    publish(world, 7)

    def give_up() -> None:
        force_abort_tree(world.parts(), run[0].job.id, dead_after=0.0)
        for _ in range(2):
            TreeCleaning(
                world.parts(), Limits(0.0, 0.0, 0.0, forget_given_after=1e9), dry_run=False
            ).run()

    told = commit(world, run, 7, Watched(world.tree, before=give_up, on=decided))
    assert (told.skipped, told.state) == (True, "absent")


def test_a_recovery_says_which_batch_it_has_published() -> None:
    """The record names it."""
    world = World()
    run = run_of(world, 7)
    with pytest.raises(Killed):
        commit(world, run, 7, Watched(world.tree, after=die, on=decided))
    report = recover_tree(world.parts(), run[0].job.id, dead_after=0.0).report
    assert report is not None
    assert (report.query, report.batch) == (QUERY, 7)


def test_an_abort_of_a_query_s_jobs_leaves_one_that_is_being_undone() -> None:
    """It was decided: an operator undoes it, and the next run of the query ends it."""
    world = World()
    run = run_of(world, 7)
    with pytest.raises(Killed):
        commit(world, run, 7, Watched(world.tree, after=die, on=decided))
    dying = Watched(
        world.tree, after=die, on=lambda v, p: v == "create" and p.endswith("_job-3.json")
    )
    with pytest.raises(Killed):
        abort_tree(world.parts(dying), run[0].job.id, revert=True)
    assert abort_jobs_of_tree(world.parts(), CHECKPOINT) == []
    (seen,) = runs_of(world.parts(), CHECKPOINT)
    assert str(seen.record.state) == "reverting"


def test_an_abort_of_a_query_s_jobs_that_is_not_answered_is_told() -> None:
    """Nobody knows whether the job is aborted, and its record is there."""
    world = World()
    run_of(world, 7)

    class Deaf(Watched):
        def create(self, path: str, data: bytes) -> None:
            raise Unanswered("no answer", operation="create")

    with pytest.raises(mc.OutcomeUnknown):
        abort_jobs_of_tree(world.parts(Deaf(world.tree)), CHECKPOINT)


def crashed(world: World) -> Run:
    """A decided run of a query in complete mode, whose driver is dead: it is in the way."""
    run = run_of(world, 7, mode="replace")
    with pytest.raises(Killed):
        commit(world, run, 7, Watched(world.tree, after=die, on=decided))
    return run


def start_again(world: World, tree: object, job_id: str | None = None) -> None:
    """The query is started again."""
    terms = Terms(track="memory", accept="results", committer="manifest", mode="replace")
    ManifestCommitter.start(
        world.process(tree), URL, terms, Options(), job_id, checkpoint=CHECKPOINT
    )


def test_a_start_with_an_id_settles_nothing() -> None:
    """Its id was used by the try that met the crashed run: it is told of that run."""
    world = World()
    crashed(world)
    with pytest.raises(mc.ConflictingJob):
        start_again(world, world.tree, "night")
    (seen,) = runs_of(world.parts(), CHECKPOINT)
    assert str(seen.record.state) == "committing"


def test_a_start_that_cannot_settle_a_crashed_run_names_it() -> None:
    """Its files cannot be renamed now: the error is the conflict, with the reason below it."""
    world = World()
    run = crashed(world)

    class Refusing(Watched):
        def rename(self, source: str, target: str, **more: Any) -> None:
            if target.endswith(".csv"):
                raise mc.errors.PermissionDenied("no")
            self._tree.rename(source, target, **more)

    with pytest.raises(mc.ConflictingJob, match=run[0].job.id) as told:
        start_again(world, Refusing(world.tree))
    assert isinstance(told.value.__cause__, mc.CommitIncomplete)


@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "it dies"])
def test_a_claimant_that_decides_while_it_is_settled_is_looked_at_again(
    ends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is to be aborted, and its driver decides it at that moment: it is finished, and nobody is
    warned of rows that are there twice."""
    world = World()
    run = run_of(world, 7)
    with pytest.raises(Killed):
        commit(world, run, 7, Watched(world.tree, before=die, on=decided))

    def decide() -> None:
        if ends:
            commit(world, run, 7)
            return
        with pytest.raises(Killed):
            commit(world, run, 7, Watched(world.tree, after=die, on=decided))

    watched = Watched(world.tree, before=decide, on=decided)
    with caplog.at_level(logging.WARNING, "magic_committer"):
        assert commit(world, run_of(world, 7), 7, watched).skipped
    assert rows(world) == ["7"]
    assert not caplog.records


def test_a_look_at_a_run_names_its_batch_and_its_checkpoint() -> None:
    """So an operator finds the query of a job that a dead driver has left."""
    world = World()
    run = crashed(world)
    found = inspect_tree_job(world.parts(), run[0].job.id, 0.0)
    assert found is not None
    assert (found.query, found.batch, found.checkpoint) == (QUERY, 7, CHECKPOINT)


def test_a_job_that_is_given_up_beside_a_broken_ledger_says_so() -> None:
    """Its files stay, the ledger cannot be told, and the query may publish the batch once more."""
    world = World()
    run = run_of(world, 7)
    with pytest.raises(Killed):
        commit(world, run, 7, Watched(world.tree, before=die, on=SecondWrite()))
    world.put(f"{LEDGER}/_ledger-2.json", b"{}")
    told = force_abort_tree(world.parts(), run[0].job.id, dead_after=0.0)
    assert told.outcome == "committed"
    assert "the ledger does not say that batch 7" in told.why

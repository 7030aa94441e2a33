"""I2 to I6 for Hadoop's jobs that are adopted, also those that were visible in part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

import magic_committer as mc
from magic_committer.commit import probe
from magic_committer.commit.register import DIAGNOSTIC_UUID
from magic_committer.errors import Unanswered
from magic_committer.errors.messages import age_words
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock, memory_store
from tests.costly import costly_store
from tests.hadoops import OLD_LAYOUT, RELEASES, HadoopJob, complete, leave_job, leave_marker
from tests.promises.hands import (
    DEST,
    At,
    Crash,
    Fits,
    committed_task,
    control,
    dies_at,
    raises,
    record_of,
    refusing,
    remains,
    visible,
)
from tests.promises.machine import DAY, YOUNG, deaths
from tests.promises.situations import contents

CASES = ("magic", "empty-file-and-no-file", "names", "multipart")
RECORD = record_of("hadoops")
OURS = {JOB_METADATA: "0" * 32}


def adopted(job: HadoopJob) -> mc.Job:
    """The job, adopted however young it is."""
    mc.adopt(DEST, job.id, dead_after=0)
    return mc.attach(DEST, job.id)


@pytest.mark.parametrize(
    ("release", "case"),
    [
        *((release, case) for release in RELEASES for case in CASES),
        *(("3.5.0", f"sum-{algorithm}") for algorithm in ("CRC32", "SHA1", "SHA256")),
    ],
)
def test_an_adopted_job_commits_its_tasks_files(s3: MemoryStore, release: str, case: str) -> None:
    """I2, I4: in each layout, byte for byte; but for marker and record nothing stays."""
    hadoops = leave_job(s3, release, case)
    report = adopted(hadoops).commit()
    assert (report.outcome, report.files, report.warnings) == ("committed", len(hadoops.files), ())
    assert remains(s3) == (hadoops.files, [], ["_job.json"])
    assert "t/_SUCCESS" in s3.keys()
    assert mc.attach(DEST, hadoops.id).outcome == "committed"


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_dying_jvm_has_completed_outlives_an_abort(
    release: str, caplog: pytest.LogCaptureFixture
) -> None:
    """I6: objects are looked for first, as an abort of a completed upload may cost the object."""
    caplog.set_level("INFO", logger="magic_committer")
    with costly_store() as s3:
        hadoops = leave_job(s3, release)
        done, over, *others = sorted(hadoops.uploads)
        complete(s3, hadoops, 2)
        s3.put_object(over, b"another's")  # over what the JVM had completed
        adopted(hadoops)
        assert mc.abort(DEST, hadoops.id, leave_visible=True).outcome == "aborted"
        assert remains(s3)[:2] == ({done: hadoops.files[done], over: b"another's"}, [])
        assert s3.lost == []
        assert f"aborted, {len(others)} uploads aborted" in caplog.text


@pytest.mark.parametrize("release", ["3.3.6", "3.4.1", "3.5.0"])
def test_what_an_earlier_application_attempt_has_completed_stays(release: str) -> None:
    """I6: the sweep of a newer attempt's commit costs nothing that an older one made visible."""
    with costly_store() as s3:
        older = leave_job(s3, release, content=b"old")
        complete(s3, older)
        newer = leave_job(s3, release, app_attempt="01", content=b"new", unfinished=True)
        assert set(newer.files) < set(older.files)
        assert adopted(newer).commit().outcome == "committed"
        assert remains(s3)[:2] == ({**older.files, **newer.files}, [])
        assert s3.lost == []


@pytest.mark.parametrize("forgetful", [False, True])
@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("release", RELEASES)
def test_an_end_that_dies_anywhere_is_finished(release: str, end: str, forgetful: bool) -> None:
    """I2, I4, I5: killed at each request, commit and abort are all or nothing after recovery."""
    outcomes = set()
    for machine, dies in deaths(least=5, forgetful_complete=forgetful):
        s3 = machine.s3
        hadoops = leave_job(s3, release, unfinished=True)
        job = adopted(hadoops)
        dies(job.commit if end == "commit" else job.abort)
        recovery = mc.recover(DEST, hadoops.id, dead_after=0)
        assert recovery.state == "closed"
        whole = recovery.outcome == "committed"
        assert remains(s3) == (hadoops.files if whole else {}, [], ["_job.json"])
        assert ("t/_SUCCESS" in s3.keys()) == whole
        outcomes.add(recovery.outcome)
    assert outcomes == ({"committed", "aborted"} if end == "commit" else {"aborted"})


def test_an_adoption_that_dies_at_any_request_harms_nothing() -> None:
    """I6: killed at each request in turn, it leaves Hadoop's job adopted, or to be adopted."""
    for machine, dies in deaths(least=5):
        probe._known.clear()
        hadoops = leave_job(machine.s3, "3.3.6")
        died = dies(lambda: mc.adopt(DEST, "hadoops", dead_after=0))
        if not any(found.adopted for found in mc.inspect(DEST)):
            mc.adopt(DEST, hadoops.id, dead_after=0)
        mc.attach(DEST, hadoops.id).commit()
        assert visible(machine.s3) == hadoops.files
        mc.cleanup(DEST, dead_after=0, leftover_after=0)
        assert set(control(machine.s3)) == {RECORD} or died


@pytest.mark.parametrize("release", ["3.3.6", "3.4.1"])
def test_the_newest_application_attempt_with_sets_counts(s3: MemoryStore, release: str) -> None:
    """I2: the newest that committed a task is taken; what the older ones left is aborted."""
    leave_job(s3, release, app_attempt="00", content=b"old")
    newer = leave_job(s3, release, app_attempt="01", content=b"new")
    third = newer.sets[0].rpartition("/")[0].removesuffix("01") + "02/tasks/a_0/__base/"
    s3.put_object(third)
    adoption = mc.adopt(DEST, "hadoops", dead_after=0)
    assert adoption.pendingsets.endswith("/job-hadoops/01/")
    assert [one[-4:] for one in adoption.passed_over] == ["/00/"]
    mc.attach(DEST, "hadoops").commit()
    assert remains(s3) == (newer.files, [], ["_job.json"])


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("release", RELEASES)
def test_another_hadoop_job_beside_it_is_untouched(s3: MemoryStore, release: str, end: str) -> None:
    """I6: jobs in the same directory, whose ids begin alike, keep every object and upload."""
    for name, content in (("hadoops2", b"2"), ("hadoop", b"1")):
        leave_job(s3, release, job_id=name, content=content, unfinished=True)
    before = {key: s3.body(key) for key in s3.keys()}
    uploads = s3.open_uploads()
    job = adopted(leave_job(s3, release, content=b"mine"))
    job.commit() if end == "commit" else job.abort()
    assert {key: s3.body(key) for key in before} == before
    assert s3.open_uploads() == uploads


@pytest.mark.parametrize("release", RELEASES)
def test_an_adopted_job_is_shown_once(s3: MemoryStore, release: str) -> None:
    """`inspect` shows one job before and one after, with the same files; others stay Hadoop's."""
    hadoops = leave_job(s3, release)
    leave_job(s3, release, job_id="other")
    before = {found.id: found for found in mc.inspect(DEST)}
    assert {found.kind for found in before.values()} == {"hadoop"}
    adopted(hadoops)
    listed = mc.inspect(DEST)
    after = {found.id: found for found in listed}
    assert len(listed) == 2
    assert (after["hadoops"].kind, after["hadoops"].state) == ("ours", "running")
    assert (after["other"].kind, after["other"].adopted) == ("hadoop", "")
    for name in ("tasks", "files", "bytes"):
        assert getattr(after["hadoops"], name) == getattr(before["hadoops"], name) > 0
    assert ("__magic/" in after["hadoops"].adopted) == (release in OLD_LAYOUT)


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_jvm_writes_keeps_its_adopted_job_young(
    s3: MemoryStore, clock: PatientClock, release: str
) -> None:
    """I3, I6: cleanup adopts no job; of an adopted one it sees that its JVM still writes."""
    hadoops = leave_job(s3, release)
    clock.ahead += 30 * DAY
    before = contents(s3)
    mc.cleanup(DEST, dead_after=0, leftover_after=0, forget_after=0)
    assert contents(s3) == before
    adopted(hadoops)
    clock.ahead += 2 * DAY
    s3.put_object(f"{hadoops.directory}late")
    clock.ahead += YOUNG
    raises(mc.JobTooYoung, mc.recover, DEST, "hadoops")
    assert mc.cleanup(DEST).recovered == ()
    clock.ahead += 2 * DAY
    assert [one.outcome for one in mc.cleanup(DEST).recovered] == ["aborted"]
    assert remains(s3) == ({}, [], ["_job.json"])


def marker_of_ours(store: MemoryStore, job: HadoopJob) -> None:
    store.put_object(f"{job.directory}x", metadata=OURS)


def set_of_ours(store: MemoryStore, job: HadoopJob) -> None:
    """A pendingset with our token in its metadata, which cannot be read."""
    store.put_object(job.sets[0].replace("task_", "zombie_"), b"{}", metadata=OURS)


def extra_data_of_ours(store: MemoryStore, job: HadoopJob) -> None:
    """A pendingset of ours that was copied without its metadata."""
    mine = mc.start("s3://bucket/elsewhere", job_id=job.id)
    result = committed_task(mine, "1", {"a.csv": b"1"})
    store.put_object(job.sets[0].replace("task_", "copy_"), store.body(result.key))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("leave", [marker_of_ours, set_of_ours, extra_data_of_ours])
def test_never_where_our_tokens_lie(
    s3: MemoryStore, release: str, leave: Callable[[MemoryStore, HadoopJob], None]
) -> None:
    """I3: what may be litter of a job of ours is refused and untouched (counterexamples.md, #5)."""
    leave(s3, leave_job(s3, release))
    before = contents(s3)
    raises(mc.JobError, mc.adopt, DEST, "hadoops", dead_after=0, match="token")
    assert contents(s3) == before


@pytest.mark.parametrize("release", RELEASES)
def test_a_job_that_has_just_changed_is_not_adopted(
    s3: MemoryStore, clock: PatientClock, release: str
) -> None:
    """What a JVM sent last may land late; nor is an unknown id, or a job that has a record."""
    leave_job(s3, release)
    clock.ahead += YOUNG / 2
    before = contents(s3)
    raises(mc.JobTooYoung, mc.adopt, DEST, "hadoops", match=age_words(YOUNG / 2))
    raises(mc.JobNotFound, mc.adopt, DEST, "hadoop", dead_after=0)
    clock.ahead += YOUNG
    assert mc.adopt(DEST, "hadoops", dry_run=True).tasks == 2
    assert contents(s3) == before
    assert mc.adopt(DEST, "hadoops").uuid
    raises(mc.OptionError, mc.attach(DEST, "hadoops").task, "1", match="accepts no tasks")
    for state in ("running", "closed"):
        raises(mc.JobExists, mc.adopt, DEST, "hadoops", dead_after=0, match=state)
        mc.abort(DEST, "hadoops")


def test_a_store_that_cannot_decide_leaves_hadoops_job_alone(s3: MemoryStore) -> None:
    """I6: where conditions are ignored nothing is adopted, and nothing of Hadoop's is touched."""
    leave_job(s3, "3.4.1")
    before, uploads = {key: s3.body(key) for key in s3.keys()}, s3.open_uploads()
    probe._known.clear()
    put = s3.put
    s3.put = lambda key, body, **k: put(  # type: ignore[method-assign]
        key, body, **{name: v for name, v in k.items() if not name.startswith("if_")}
    )
    raises(mc.ConditionsNotSupported, mc.adopt, DEST, "hadoops", dead_after=0)
    assert {key: s3.body(key) for key in before} == before
    assert s3.open_uploads() == uploads
    probe._known.clear()


def test_two_who_adopt_at_once_make_one_record(s3: MemoryStore) -> None:
    """I3, I5: the PUT of the record decides; the job takes no task and no late set of ours."""
    hadoops = leave_job(s3, "3.3.6")
    creates = lambda r: r.verb == "put" and r.key == RECORD and r.if_none_match  # noqa: E731
    with At(s3, creates, lambda: mc.adopt(DEST, "hadoops", dead_after=0)):
        raises(mc.JobExists, mc.adopt, DEST, "hadoops", dead_after=0, match="running")
    job = mc.attach(DEST, "hadoops")
    raises(mc.OptionError, job.task, "1", match="adopted")
    with pytest.raises(mc.OptionError, match="adopted"):
        mc.open_magic("s3://bucket/t/__magic_job-hadoops/job-hadoops/00/tasks/a_0/__base/x.csv")
    set_of_ours(s3, hadoops)
    report = job.commit()
    assert (report.outcome, report.tasks) == ("committed", 2)
    assert visible(s3) == hadoops.files
    assert len(control(s3)) == 2


def test_a_commit_that_finds_something_wrong_decides_nothing(s3: MemoryStore) -> None:
    """A missing upload is told, the others stay open, and a person decides."""
    hadoops = leave_job(s3, "3.5.0")
    lost, *others = sorted(hadoops.uploads)
    s3.drop_upload(hadoops.uploads[lost])
    job = adopted(hadoops)
    assert raises(mc.CommitRefused, job.commit, match="not open").problems[0].startswith(lost)
    assert mc.attach(DEST, "hadoops").state == "running"
    assert sorted(remains(s3)[1]) == others
    assert job.abort().outcome == "aborted"
    assert s3.open_uploads() == ()


def test_an_object_with_another_etag_is_never_guessed_about() -> None:
    """I10: ETags that are no MD5s (SSE-KMS) tell nothing: the key is unresolved until accepted."""
    with memory_store(forgetful_complete=True) as s3:
        hadoops = leave_job(s3, "3.4.1")
        first = min(hadoops.uploads)
        job = adopted(hadoops)

        def completed_under_kms() -> None:
            s3.put_object(first, hadoops.files[first])  # the same bytes under another ETag
            raise Crash

        with At(s3, f"complete_upload {first}", completed_under_kms, after=True):
            raises(Crash, job.commit)
        for _ in range(2):
            assert raises(mc.CommitIncomplete, mc.recover, DEST, "hadoops").unresolved == (first,)
        assert mc.recover(DEST, "hadoops", accept=[first]).outcome == "committed"
        assert visible(s3) == hadoops.files


@pytest.mark.parametrize("release", RELEASES)
def test_an_adopted_job_is_reverted_while_it_commits(s3: MemoryStore, release: str) -> None:
    """I3: undone half-way, what was published of it is deleted again: by its multipart ETag."""
    hadoops = leave_job(s3, release)
    last = sorted(hadoops.files)[-1]
    dies_at(s3, f"complete_upload {last}", adopted(hadoops).commit)
    assert mc.abort(DEST, "hadoops", revert=True).outcome == "reverted"
    assert remains(s3)[:2] == ({}, [])


STAY = "2 of 3 files are visible already, and stay"
ENDS: dict[str, Callable[[], object]] = {
    "abort": lambda: mc.abort(DEST, "hadoops"),
    "handle": lambda: mc.attach(DEST, "hadoops").abort(),
    "recover": lambda: mc.recover(DEST, "hadoops", dead_after=0),
}
"""What would abort an adopted job."""


def half_published(s3: MemoryStore, release: str = "3.5.0", many: int = 2) -> HadoopJob:
    """A job of three files, adopted, of which some were visible when its JVM died."""
    hadoops = leave_job(s3, release)
    complete(s3, hadoops, many)
    mc.adopt(DEST, "hadoops", dead_after=0)
    return hadoops


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("release", RELEASES)
def test_it_is_not_aborted_unasked(s3: MemoryStore, release: str, end: str) -> None:
    """I6: that would tear a table: the commit that the error advises publishes all."""
    hadoops = half_published(s3, release)
    before = contents(s3)
    told = raises(mc.AlreadyVisible, ENDS[end], match="2 of 3 files are visible already")
    assert (told.visible, told.doubtful, told.files) == (2, 0, 3)
    assert list(told.keys) == sorted(hadoops.uploads)[:2]
    assert contents(s3) == before
    assert mc.attach(DEST, "hadoops").commit().files == 3
    assert visible(s3) == hadoops.files


@pytest.mark.parametrize("end", ENDS)
def test_what_another_adopter_publishes_is_not_called_the_jvms(s3: MemoryStore, end: str) -> None:
    """I10: another process commits while an abort looks: the job is committed."""
    hadoops = half_published(s3, many=0)
    with At(s3, "head t/*.txt", mc.attach(DEST, "hadoops").commit):
        if end == "recover":
            assert ENDS[end]().outcome == "committed"  # type: ignore[attr-defined]
        else:
            raises(mc.JobNotRunning, ENDS[end], match="committed")
    assert visible(s3) == hadoops.files


@pytest.mark.parametrize("how", [mc.abort, mc.recover])
@pytest.mark.parametrize("release", RELEASES)
def test_the_word_leaves_what_is_visible_and_aborts_the_rest(
    s3: MemoryStore, release: str, how: Callable[..., object]
) -> None:
    """I3, I10: with ``leave_visible`` report and record say what stays; no upload does."""
    hadoops = half_published(s3, release)
    limit = {"dead_after": 0} if how is mc.recover else {}
    done = how(DEST, "hadoops", leave_visible=True, **limit)
    (found,) = mc.inspect(DEST)
    assert found.would == f"nothing: it was aborted; {STAY}"
    assert mc.recover(DEST, "hadoops").did == found.would
    report = done.report if isinstance(done, mc.Recovery) else done
    assert isinstance(report, mc.JobReport)
    assert report.outcome == "aborted"
    assert STAY in report.warnings
    first_two = {key: hadoops.files[key] for key in sorted(hadoops.files)[:2]}
    assert remains(s3) == (first_two, [], ["_job.json"])
    with pytest.raises(mc.JobNotRunning, match="made visible before it died stays"):
        mc.attach(DEST, "hadoops").commit()


def test_a_job_of_which_nothing_is_visible_aborts_without_a_word(s3: MemoryStore) -> None:
    """Old objects at its keys, of another size, and uploads that are gone are nothing of it."""
    hadoops = half_published(s3, many=0)
    first, second, _ = sorted(hadoops.uploads)
    s3.put_object(first, hadoops.files[first] + b"older")
    s3.put_object(second, hadoops.files[second])  # its upload is open: this is not its object
    s3.drop_upload(hadoops.uploads[first])
    report = mc.abort(DEST, "hadoops")
    assert (report.outcome, report.warnings) == ("aborted", ())
    assert set(visible(s3)) == {first, second}


def test_a_file_of_which_nobody_can_tell_is_not_called_invisible(s3: MemoryStore) -> None:
    """I10: under SSE-KMS an object of an ended upload's size may be what it became."""
    hadoops = half_published(s3, many=0)
    first = min(hadoops.uploads)
    s3.drop_upload(hadoops.uploads[first])
    s3.put_object(first, b"x" * len(hadoops.files[first]))
    with pytest.raises(mc.AlreadyVisible, match=r"0 of 3 .*of 1 more nobody can tell") as refused:
        mc.abort(DEST, "hadoops")
    assert (refused.value.visible, refused.value.doubtful) == (0, 1)
    assert mc.abort(DEST, "hadoops", leave_visible=True).outcome == "aborted"


@pytest.mark.parametrize("verb", ["head", "list_parts", "get"])
def test_a_look_that_gets_no_answer_decides_nothing(s3: MemoryStore, verb: str) -> None:
    """Where the store does not answer, nobody knows what is visible: the job runs on."""
    half_published(s3, many=1)
    before = contents(s3)
    looks: Fits = lambda r: r.verb == verb and r.key != RECORD  # noqa: E731
    with refusing(s3, looks, Unanswered), pytest.raises(Unanswered):
        mc.abort(DEST, "hadoops")
    assert contents(s3) == before
    assert mc.attach(DEST, "hadoops").state == "running"


def test_what_an_older_application_attempt_made_visible_counts(s3: MemoryStore) -> None:
    """An abort of the second attempt would leave what the first made visible."""
    older = leave_job(s3, "3.5.0", content=b"old")
    complete(s3, older, 1)
    leave_job(s3, "3.5.0", app_attempt="01", content=b"new")
    adoption = mc.adopt(DEST, "hadoops", dead_after=0)
    assert (len(adoption.passed_over), adoption.passed_over_tasks) == (1, 2)
    raises(mc.AlreadyVisible, mc.abort, DEST, "hadoops", match="1 of 3 files")


def test_cleanup_leaves_it_and_says_so(s3: MemoryStore, clock: PatientClock) -> None:
    """I6: nobody but a person tears it. A dry recovery says why, and what would stay."""
    half_published(s3)
    clock.ahead += 30 * DAY
    before = contents(s3)
    for dry_run in (True, False):
        report = mc.cleanup(DEST, dry_run=dry_run)
        told = [*report.errors, *(one.did for one in report.recovered)]
        assert any("2 of 3 files are visible" in line for line in told)
        assert bool(report.errors) is not dry_run
    dry = mc.recover(DEST, "hadoops", dead_after=0, dry_run=True)
    assert dry.did.startswith("nothing: job 'hadoops' cannot simply be aborted: 2 of 3 files")
    dry = mc.recover(DEST, "hadoops", dead_after=0, leave_visible=True, dry_run=True)
    assert dry.did.endswith(f"; {STAY}")
    assert contents(s3) == before


def committed(s3: MemoryStore, release: str) -> tuple[HadoopJob, bytes]:
    """A job whose JVM died in its cleanup: a set is gone, a file was written over since."""
    hadoops = leave_job(s3, release)
    complete(s3, hadoops)
    body = leave_marker(s3, hadoops, release)
    s3.delete_one(hadoops.sets[0])
    rewritten = max(hadoops.files)
    s3.put_object(rewritten, b"newer")
    hadoops.files[rewritten] = b"newer"
    return hadoops, body


@pytest.mark.parametrize("end", ["commit", "recover", "cleanup", "commit, all sets gone"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_job_that_its_marker_names_is_only_swept(
    s3: MemoryStore, clock: PatientClock, release: str, end: str
) -> None:
    """I8: Hadoop's `_SUCCESS` and the files stay, and the job's tree goes."""
    hadoops, body = committed(s3, release)
    if "gone" in end:
        for key in hadoops.sets[1:]:
            s3.delete_one(key)
        s3.put_object(f"{hadoops.directory}job-hadoops/00/tasks/")
    assert mc.adopt(DEST, "hadoops", dead_after=0).committed
    if "commit" in end:
        assert mc.attach(DEST, "hadoops").commit().outcome == "committed"
    elif end == "recover":
        assert mc.recover(DEST, "hadoops").outcome == "committed"
    else:
        clock.ahead += 2 * YOUNG
        assert [one.outcome for one in mc.cleanup(DEST).recovered] == ["committed"]
    assert s3.body("t/_SUCCESS") == body
    assert remains(s3) == (hadoops.files, [], ["_job.json"])
    assert mc.attach(DEST, "hadoops").outcome == "committed"


@pytest.mark.parametrize("release", RELEASES)
def test_a_job_that_its_marker_names_is_never_aborted(s3: MemoryStore, release: str) -> None:
    """I5: Hadoop has decided it: also the word does not abort it, and nothing is touched."""
    committed(s3, release)
    mc.adopt(DEST, "hadoops", dead_after=0)
    before = contents(s3)
    for leave, revert in ((False, False), (True, False), (False, True)):
        with pytest.raises(mc.JobNotRunning) as refused:
            mc.abort(DEST, "hadoops", leave_visible=leave, revert=revert)
        assert refused.value.outcome == "committed"
    assert contents(s3) == before


def test_a_sweep_that_dies_at_any_request_is_finished() -> None:
    """I4, I5: neither file nor marker is touched, and a recovery ends it."""
    for machine, dies in deaths(least=5):
        s3 = machine.s3
        hadoops, body = committed(s3, "3.5.0")
        mc.adopt(DEST, "hadoops", dead_after=0)
        dies(mc.attach(DEST, "hadoops").commit)
        assert mc.recover(DEST, "hadoops").state == "closed"
        assert (visible(s3), s3.body("t/_SUCCESS")) == (hadoops.files, body)
        assert control(s3) == [RECORD]


MARKERS: dict[str, dict[str, Any]] = {
    "the id was used again": {},
    "a set names an open upload": {},
    "a set cannot be read": {},
    "a job of ours with that id wrote it": {"diagnostics": {DIAGNOSTIC_UUID: "0" * 32}},
    "it tells of a failure": {"success": False},
    "a later job wrote it": {"jobId": "another"},
    "a classic committer wrote it": {},
}


@pytest.mark.parametrize("case", MARKERS)
def test_a_marker_that_does_not_prove_it_is_not_believed(
    s3: MemoryStore, clock: PatientClock, case: str
) -> None:
    """I10: what is visible counts as in any other job, and a commit may publish the rest."""
    hadoops = leave_job(s3, "3.5.0")
    complete(s3, hadoops, 2 if "open" in case else 3)
    if "cannot be read" in case:
        s3.put_object(hadoops.sets[0], b"{")
    if "classic" in case:
        s3.put_object("t/_SUCCESS")  # it names nobody
    else:
        leave_marker(s3, hadoops, "3.5.0", **MARKERS[case])
    if "again" in case:
        clock.ahead += 5
        s3.put_object(hadoops.sets[0], s3.body(hadoops.sets[0]))
    assert not mc.adopt(DEST, "hadoops", dead_after=0).committed
    raises(mc.AlreadyVisible, mc.abort, DEST, "hadoops", match="visible already")
    assert mc.attach(DEST, "hadoops").state == "running"


def test_a_file_outside_the_destination_is_no_file_of_a_dead_jvm(s3: MemoryStore) -> None:
    """I6: a set that names a key elsewhere makes nothing visible: the job is aborted."""
    hadoops = half_published(s3, many=0)
    document = orjson.loads(s3.body(hadoops.sets[0]))
    commit = document["commits"][0]
    commit |= {"destinationKey": "elsewhere/x.csv", "uri": "s3a://bucket/elsewhere/x.csv"}
    s3.put_object("elsewhere/x.csv", b"x" * commit["length"])
    s3.put_object(hadoops.sets[0], orjson.dumps(document))
    assert mc.abort(DEST, "hadoops").outcome == "aborted"

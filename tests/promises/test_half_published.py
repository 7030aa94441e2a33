"""I2, I3, I6 for Hadoop's jobs that had made files visible when their JVM died."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

import magic_committer as mc
from magic_committer.commit.register import DIAGNOSTIC_UUID
from magic_committer.errors import Unanswered
from magic_committer.stores.memory import MemoryStore
from magic_committer.testing import PatientClock
from tests.hadoops import RELEASES, HadoopJob, complete, leave_job, leave_marker
from tests.promises.hands import (
    DEST,
    At,
    Fits,
    control,
    raises,
    record_of,
    refusing,
    remains,
    visible,
)
from tests.promises.machine import DAY, HOUR, deaths
from tests.promises.situations import contents

RECORD = record_of("hadoops")
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
    refused = raises(mc.AlreadyVisible, ENDS[end], match="2 of 3 files are visible already")
    told = refused
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
        clock.ahead += 2 * HOUR
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

"""I2, I9: what a driver accepts is exactly what its tasks told it, and nothing like it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from msgspec.structs import replace

import magic_committer as mc
from magic_committer import options
from magic_committer.errors import Unanswered
from magic_committer.options import Mode
from magic_committer.protocol.record import JOB_METADATA
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, At, committed_task, control, dies_at, job_of, raises, visible
from tests.promises.machine import matching


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"files": 7}, mc.CommitRefused, "its task said"),
        ({"bytes": 7}, mc.CommitRefused, "its task said"),
        ({"key": "elsewhere"}, mc.CommitRefused, "not where its pendingset belongs"),
        ({"etag": '"another"'}, mc.CommitRefused, "ETag"),
        ({"etag": ""}, mc.OptionError, "task '1' has no ETag"),
        ({"task": "3"}, mc.CommitRefused, "is '1', not '3'"),
        ({"job_uuid": "0" * 32}, mc.OptionError, "is of another job. Run the task again"),
    ],
)
def test_a_result_that_tells_of_another_set_is_refused(
    s3: MemoryStore, change: dict[str, Any], error: type[Exception], told: str
) -> None:
    """I2, I9: it is held against its set; one that would accept any version is refused before."""
    job = mc.start(DEST, accept="results")
    result = committed_task(job, "1", {"a.csv": b"1"})
    if "key" in change:
        change = {"key": f"{result.key}.pendingset"}
        stored = s3.get(result.key, max_bytes=10**6)
        s3.put(change["key"], stored.body, metadata=stored.info.metadata)
    raises(error, job.commit, [replace(result, **change)], match=told)
    assert visible(s3) == {}
    if error is mc.OptionError:
        assert job.commit([result]).files == 1


CHANGES = {
    "changed": (b'"length":1', b'"length":2'),
    "aborted": (b'"commits":[', b'"commits":[],"more":['),
}


@pytest.mark.parametrize("what", ["gone", "changed", "aborted", "another job's"])
def test_a_set_that_is_not_the_tasks_any_more_is_refused(s3: MemoryStore, what: str) -> None:
    """I2: nothing is decided by what only this process remembers of it."""
    job = mc.start(DEST, accept="results")
    result = committed_task(job, "1", {"a.csv": b"1"})
    body = s3.body(result.key)
    if what == "gone":
        s3.delete_object(result.key)
    elif what == "another job's":
        s3.put_object(result.key, body, metadata={JOB_METADATA: "0" * 32})
    else:
        old, new = CHANGES[what]
        s3.put_object(result.key, body.replace(old, new))
    raises(mc.CommitRefused, job.commit, [result])
    assert visible(s3) == {}


@pytest.mark.parametrize(
    "own",
    [mc.Options(), mc.Options(etag_form="strings", checksum="off"), None],
    ids=["a moment ago", "of strings", "read"],
)
def test_what_tasks_counted_is_in_the_report_and_the_marker(
    s3: MemoryStore, own: mc.Options | None
) -> None:
    """By the names of Hadoop's iostatistics, whoever reads the set. `write` reads none."""
    if own:
        with mc.write(DEST, options=own) as writing:
            for n in range(3):
                writing.write_bytes(f"{n}.txt", b"1")
        report = writing.report
        assert s3.requests["get"] == 3
    else:
        job = mc.start(DEST, accept="results")
        report = job.commit([committed_task(job, str(n), {f"{n}.csv": b"1"}) for n in range(3)])
    marker = orjson.loads(s3.body("t/_SUCCESS"))
    for found in (report.statistics, marker["iostatistics"]):
        assert found["counters"]["committer_commits_created"] == 3


@pytest.mark.parametrize("files", [1, 0], ids=["a file", "an empty table"])
def test_results_that_are_left_out_are_told(s3: MemoryStore, files: int) -> None:
    """Counted and named in one line; a slower attempt of an accepted task is no such thing."""
    job = mc.start(DEST, accept="results")
    results = [committed_task(job, str(n), {f"{n}.csv": b"1"}) for n in range(3)]
    twin = committed_task(job, "0", {"0.csv": b"2"})
    lost = committed_task(job, "3", {"3.csv": b"1", "4.csv": b"1"})
    (warning,) = job.commit(results[:2] if files else results[:0], expect=2 * files).warnings[-1:]
    if files:
        assert warning.startswith("2 tasks committed 3 files, and no result of theirs was accepted")
        assert "'2'" in warning or "2, 3" in warning
    else:
        assert warning.startswith("4 tasks committed 6 files")
    assert {twin.task, lost.task} == {"0", "3"}
    assert len(visible(s3)) == 2 * files
    assert (s3.open_uploads(), control(s3)) == ((), [])


@pytest.mark.parametrize("call", ["commit", "abort"])
@pytest.mark.parametrize(
    ("term", "value"), [("mode", "replace"), ("mark_success", False), ("accept", "listing")]
)
def test_a_handle_with_other_terms_than_the_record_decides_nothing(
    s3: MemoryStore, call: str, term: str, value: object
) -> None:
    """I3, I5: its JSON was edited, or is of an older job: both are shown, and what to do works."""
    s3.put_object("t/old.csv", b"old")
    job = mc.start(DEST, accept="results")
    result = committed_task(job, "1", {"a.csv": b"1"})
    values = job.to_dict()
    values["terms"][term] = value
    edited = mc.Job.from_dict(values)
    with pytest.raises(mc.OptionError, match=f"{term} {value!r}, and the record") as caught:
        edited.commit([result]) if call == "commit" else edited.abort()
    assert f"attach('s3://bucket/t/', '{job.id}').commit(" in str(caught.value)
    assert job.state == "running"
    assert mc.attach("s3://bucket/t/", job.id).commit([result]).files == 1
    assert visible(s3) == {"t/a.csv": b"1", "t/old.csv": b"old"}


def test_a_check_that_another_driver_made_fail_tells_of_its_commit(s3: MemoryStore) -> None:
    """I10: it commits between our look and our checks: the uploads are not open any more."""
    job = mc.start(DEST)
    result = committed_task(job, "1", {"a.csv": b"1"})
    rival = mc.attach(DEST, job.id)
    with At(s3, "list_uploads", lambda: rival.commit([result])):
        assert job.commit([result]).outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}


def test_the_plan_of_a_swap_that_an_executor_moved_on_stays(s3: MemoryStore) -> None:
    """I5: our swap won, its reply was lost, and another executes our plan: it is not deleted."""
    job = job_of({"a.csv": b"1"})
    rival = mc.attach(DEST, job.id)
    plans: list[str] = []

    def rival_completes() -> None:
        dies_at(s3, "put t/_SUCCESS", rival.commit)
        plans.extend(matching(s3, "*/_plan-*"))
        raise Unanswered("the reply of our swap")

    record = f"t/__magic_job-{job.id}/_job.json"
    At(s3, lambda _: b'"committing"' in s3.body(record), rival_completes, after=True)
    assert job.commit().outcome == "committed"
    assert len(plans) == 1
    assert visible(s3) == {"t/a.csv": b"1"}
    assert "t/_SUCCESS" in s3.keys()


@pytest.mark.parametrize("mode", ["replace", "replace_partitions"])
def test_a_replace_that_writes_the_same_bytes_again_keeps_them(s3: MemoryStore, mode: Mode) -> None:
    """I7: the file has the ETag of the old one; it is rewritten, so it is not deleted."""
    for _ in range(2):
        with mc.write(DEST, mode=mode) as job, job.open("a.csv", unique=False) as f:
            f.write(b"1")
    assert visible(s3) == {"t/a.csv": b"1"}


def checksums(s3: MemoryStore) -> set[str]:
    """Of the parts of the open uploads."""
    parts = (part for one in s3.open_uploads() for part in s3.list_parts(one.key, one.upload_id))
    return {part.checksum.algorithm for part in parts if part.checksum}


def test_a_task_takes_the_checksum_that_its_job_has_agreed_on(s3: MemoryStore) -> None:
    """A process without the job's options writes parts that the job can complete."""
    job = mc.start(DEST, options=mc.Options(checksum="CRC32C"))
    committed_task(mc.attach(DEST, job.id), "1", {"a.csv": b"a"})
    assert checksums(s3) == {"CRC32C"}


def test_processes_with_different_packages_write_one_job(
    s3: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes the checksum that it computes fastest, and the job completes all with theirs."""
    job = mc.start(DEST)
    for task, algorithm in (("1", "CRC32"), ("2", "CRC32C")):
        monkeypatch.setattr(options, "fastest", lambda algorithm=algorithm: algorithm)
        committed_task(mc.attach(DEST, job.id), task, {f"{task}.csv": b"1"})
    assert checksums(s3) == {"CRC32", "CRC32C"}
    assert job.commit().outcome == "committed"
    assert visible(s3) == {"t/1.csv": b"1", "t/2.csv": b"1"}

"""The public handles: what they accept, and that they travel whole, without a secret."""

from __future__ import annotations

import json
import logging
import pickle
from types import MappingProxyType
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.options import Track
from magic_committer.stores.base import KEY_BYTES_MAX
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import (
    DEST,
    committed_task,
    control,
    job_of,
    one_file,
    raises,
    remains,
    visible,
    write,
)

PATH = "s3a://bucket/t/__magic_job-1/job-1/00/tasks/a_0/__base/dt=1/x.csv"


SECRETS = mc.S3Options(
    endpoint_url="http://user:hunter1@minio:9000",
    region="eu-west-1",
    access_key="AKIAHUNTER2",
    secret_key="hunter3",
    session_token="hunter4",
    encryption="SSE-C",
    sse_customer_key=b"hunter5!" * 4,
    tags=(("team", "data"),),
)


def sent(job: mc.Job) -> dict[str, Any]:
    """A job's dict, after a way through JSON."""
    values: dict[str, Any] = json.loads(json.dumps(job.to_dict()))
    return values


def test_open_magic_names_the_call_that_starts_the_job(s3: MemoryStore) -> None:
    """Without a running job the error says which call to make, and nothing is written."""
    raises(mc.JobNotRunning, mc.open_magic, PATH, match=r"start\('s3://bucket/t/', job_id='1'\)")
    mc.start(DEST, job_id="1").abort()
    assert raises(mc.JobNotRunning, mc.open_magic, PATH).outcome == "aborted"
    assert s3.open_uploads() == ()


def test_open_magic_without_a_fence_is_hadoops_shape_and_warns(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """``fence=False``: marker and `.pending` as S3A writes them, no record, no token of ours."""
    with caplog.at_level(logging.WARNING), mc.open_magic(PATH, fence=False) as f:
        f.write(b"12345")
    assert "S3A's guarantees" in caplog.text
    key = PATH.removeprefix("s3a://bucket/")
    pending = json.loads(s3.body(f"{key}.pending"))
    assert (pending["extraData"], pending["length"], pending["jobId"]) == ({}, 5, "")
    assert s3.attributes(key).metadata == {"x-hadoop-s3a-magic-data-length": "5"}
    assert len(s3.open_uploads()) == 1


@pytest.mark.parametrize(
    "path",
    [
        "x.csv",
        "__magic_job-1/job-1/00/tasks/a_0/__base/x.csv.pending",
        "__magic_job-1/job-1/00/tasks/a_0/__base/../x.csv",
        "__magic/job-1/tasks/a_0/__base/x.csv",
    ],
)
def test_open_magic_refuses_paths_that_lose_data(s3: MemoryStore, path: str) -> None:
    """What is no path of a job, or would be lost there, is refused before any request."""
    mc.start(DEST, job_id="1")
    s3.requests.clear()
    raises(mc.PathError, mc.open_magic, f"s3a://bucket/t/{path}")
    assert not s3.requests


def test_a_job_id_is_used_once(s3: MemoryStore) -> None:
    """Running, committed or aborted: the same id is refused, also by what a zombie left."""
    mc.start(DEST, job_id="1")
    raises(mc.JobExists, mc.start, DEST, job_id="1")
    mc.attach(DEST, "1").commit(expect=0)
    assert mc.attach(DEST, "1").state == "closed"
    raises(mc.JobExists, mc.start, DEST, job_id="1")
    s3.put_object("t/__magic_job-2/job-2/00/zombie.pendingset", b"{}")
    raises(mc.JobExists, mc.start, DEST, job_id="2", match="not empty")


def test_mode_fail_refuses_a_destination_with_data(s3: MemoryStore) -> None:
    """Data means an object without hidden elements; nothing is written, no record stays."""
    s3.put_object("t/_delta_log/0.json", b"{}")
    s3.put_object("t/.hidden/a", b"1")
    s3.put_object("t/empty/", b"")
    with mc.write(DEST, mode="fail") as job:
        write(job, "dt=1/a.csv")
    raises(mc.DestinationExists, mc.start, DEST, mode="fail", match=r"dt=1/a\.csv")
    assert control(s3) == []


def test_mode_fail_looks_again_before_the_decision(s3: MemoryStore) -> None:
    """Somebody wrote there meanwhile: the job is aborted, and theirs is untouched."""
    job = job_of({"a.csv": b"1"}, mode="fail")
    s3.put_object("t/b.csv", b"theirs")
    raises(mc.DestinationExists, job.commit)
    assert remains(s3) == ({"t/b.csv": b"theirs"}, [], [])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"files": "1"}, "files"),
        ({"job_uuid": None}, "job_uuid"),
        ({"surprise": 1}, "surprise"),
        ({"files": True}, "files"),
    ],
)
def test_a_result_that_was_garbled_on_the_way_is_refused(
    s3: MemoryStore, change: dict[str, object], field: str
) -> None:
    """`TaskCommit.from_dict` names the field that is wrong."""
    result = committed_task(mc.start(DEST), "1", {})
    raises(mc.FormatError, mc.TaskCommit.from_dict, {**result.to_dict(), **change}, match=field)
    for name in result.to_dict():  # a result that lost its key would be one without files
        values = result.to_dict()
        del values[name]
        raises(mc.FormatError, mc.TaskCommit.from_dict, values, match=f"{name}: is missing")


def test_a_task_with_files_in_memory_does_not_travel(s3: MemoryStore) -> None:
    """No other handle has them. A task tracked on the store travels with its files."""
    in_memory = one_file(mc.start(DEST, track="memory"))
    raises(pickle.PicklingError, pickle.dumps, in_memory, match="track='s3'")
    in_memory.abort()
    job = mc.start(DEST, track="s3")
    elsewhere = pickle.loads(pickle.dumps(one_file(job)))
    assert job.commit([elsewhere.commit()]).files == 1
    assert visible(s3) == {"t/a.csv": b"1"}
    with pytest.raises(mc.OptionError, match="track='s3'"):
        mc.start(DEST, track="memory").task("1", attempt="a")


def test_results_of_other_jobs_and_double_ones_change_nothing(s3: MemoryStore) -> None:
    """Wrong arguments raise, and the job goes on."""
    job, other = mc.start(DEST), mc.start(DEST)
    mine = committed_task(job, "1", {"a.csv": b"1"})
    twin = committed_task(job, "1", {"a.csv": b"2"})
    theirs = committed_task(other, "2", {"b.csv": b"3"})
    for wrong in ([mine, theirs], [mine, twin], ["1"]):
        with pytest.raises(mc.OptionError):
            job.commit(wrong)  # type: ignore[arg-type]
    assert job.commit([mine]).files == 1


def test_attributes_reach_the_object(s3: MemoryStore) -> None:
    """Content type and user metadata are the object's; our token is beside them."""
    attributes = mc.Attributes(content_type="text/csv", metadata={"origin": "test"})
    with mc.write(DEST) as job:
        write(job, attributes=attributes)
    born = s3.attributes("t/a.csv")
    assert (born.content_type, born.metadata["origin"]) == ("text/csv", "test")
    assert born.metadata["magic-committer-token"].startswith(job.job.uuid)


def test_one_name_twice_in_a_task_is_refused_at_open(s3: MemoryStore) -> None:
    """The second file of a name is refused at once; an aborted one may be written again."""
    with mc.write(DEST) as job:
        with pytest.raises(ZeroDivisionError), job.open("a.csv"):
            raise ZeroDivisionError
        write(job)
        raises(mc.PathError, job.open, "a.csv", match="already")
    assert visible(s3) == {"t/a.csv": b"1"}


@pytest.mark.parametrize("track", ["memory", "s3"])
def test_a_key_that_is_too_long_is_refused_and_the_longest_is_published(
    s3: MemoryStore, track: Track
) -> None:
    """1,024 bytes, those of the `.pending` where one is saved: more fails at open, where it can
    still be mended."""
    job = mc.start(DEST, job_id="given", track=track)
    with job.task("1", attempt="a" if track == "s3" else None) as task:
        saved = "__magic_job-given/job-given/00/tasks/a/__base/.pending" if track == "s3" else ""
        name = "x" * (KEY_BYTES_MAX - len(f"t/{saved}"))
        raises(mc.PathError, task.open, f"{name}x", match="1024")
        write(task, name)
    mc.attach(DEST, "given").commit(expect=1)
    assert visible(s3) == {f"t/{name}": b"1"}


def test_progress_tells_of_each_phase(s3: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    """In order, up to the total. Each line of the one logger names the job."""
    told: list[mc.Progress] = []
    with caplog.at_level(logging.DEBUG), mc.write(DEST, progress=told.append) as job:
        for n in range(3):
            write(job, f"{n}.csv")
    assert [p.phase for p in told if p.phase in ("load", "complete")] == ["load"] + ["complete"] * 3
    assert (told[-1].done, told[-1].total, told[-1].unit) == (3, 3, "files")
    lines = [r for r in caplog.records if r.name == "magic_committer"]
    assert len(lines) >= 3
    assert all(job.id in r.getMessage() for r in lines)


def test_an_attempt_sums_as_its_job_does(s3: MemoryStore) -> None:
    """A worker with other options of its own: all files of a job have one checksum."""
    job = mc.start(DEST, options=mc.Options(checksum="CRC32C"))
    worker = mc.attach(DEST, job.id, options=mc.Options(checksum="off"))
    with worker.task("1") as task:
        write(task, "1.csv")
    (pending,) = json.loads(s3.body(task.result.key))["commits"]
    assert [part["checksumAlgorithm"] for part in pending["etags"]] == ["CRC32C"]


def test_a_progress_function_that_raises_ends_no_job(
    s3: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first error is logged, and it is not called again."""
    told: list[mc.Progress] = []

    def broken(step: mc.Progress) -> None:
        told.append(step)
        raise RuntimeError("mine")

    with mc.write(DEST, progress=broken) as job:
        write(job, "1.csv")
    assert (job.report.outcome, len(told)) == ("committed", 1)
    (line,) = [one for one in caplog.records if "progress function raised" in one.getMessage()]
    assert line.exc_info is not None
    assert line.exc_info[0] is RuntimeError


def test_a_copy_says_what_the_job_says(s3: MemoryStore) -> None:
    """Names, terms, options, state and outcome arrive; and a second way changes nothing."""
    options = mc.Options(block_bytes=6 * 1024**2, checksum="CRC32C")
    job = mc.start(DEST, track="memory", accept="results", options=options, s3=SECRETS)
    copy = mc.Job.from_dict(sent(job))
    assert (copy.id, copy.uuid, copy.dest, copy.track) == (job.id, job.uuid, job.dest, "memory")
    assert (copy.state, copy.outcome) == ("running", "")
    assert (copy._options, copy._started.terms) == (options, job._started.terms)
    assert (copy._s3.region, copy._s3.tags) == ("eu-west-1", (("team", "data"),))
    assert copy.to_dict() == job.to_dict()
    job.abort()
    assert mc.Job.from_dict(sent(job)).outcome == "aborted"


@pytest.mark.parametrize(
    "copied", [lambda job: mc.Job.from_dict(sent(job)), lambda job: pickle.loads(pickle.dumps(job))]
)
def test_a_copy_leaves_the_record_of_its_job(s3: MemoryStore, copied: Any) -> None:
    """I10: others have the job, and may still ask what became of it: its record is closed, not
    deleted."""
    job = mc.start(DEST)
    assert copied(job).commit(expect=0).state == "closed"


def test_no_secret_is_in_it(s3: MemoryStore) -> None:
    """``from_dict(..., s3=...)`` gives them where it arrives, and is not in the dict."""
    job = mc.start(DEST, s3=SECRETS)
    text = json.dumps(job.to_dict())
    assert "hunter" not in text.lower()
    assert b"hunter" not in pickle.dumps(job).lower()
    assert "http://minio:9000" in text
    copy = mc.Job.from_dict(sent(mc.start(DEST)), s3=SECRETS)
    assert copy._s3 is SECRETS
    assert "hunter" not in json.dumps(copy.to_dict()).lower()


DROP = object()


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("version", 2, "is 2, this library knows 1"),
        ("uuid", DROP, "is missing"),
        ("uuid", "x", "32 hexadecimal digits"),
        ("id", "a/b", "cannot be part of a key"),
        ("dest", "s3://bucket/t", "not as a job writes it"),
        ("dest", "ftp://t", "not an S3 URL"),
        ("state", "walking", "does not know"),
        ("outcome", "done", "does not know"),
        ("given_id", 1, "expected true or false"),
        ("adopted", "elsewhere", "adopted"),
        ("newer", 1, "unknown"),
        ("undisturbed", True, "unknown"),
        ("terms.mode", "overwrite", "terms.mode"),
        ("terms.mark_success", "no", "expected true or false"),
        ("options.block_bytes", 1, "not between"),
        ("options.commit_threads", True, "expected a whole number"),
        ("options.newer", 1, "unknown"),
        ("s3.region", 5, "expected a string or null"),
        ("s3.tags", "team", "expected a list"),
        ("s3.endpoint_url", ["http://user:hunter2@host"], "is a list, expected"),
        ("id", "\ud800", "is no JSON"),
        ("options", mc.Options(), "is no JSON"),
        ("s3", MappingProxyType({"secret_key": "hunter2"}), "is no JSON"),
        ("s3.secret_key", "hunter3", "a secret does not travel"),
    ],
)
def test_a_bad_dict_names_its_field(s3: MemoryStore, path: str, value: object, told: str) -> None:
    """Nothing is guessed, nothing is sent, and no value of a secret is shown."""
    values = sent(mc.start(DEST))
    s3.requests.clear()
    where = values
    *above, last = path.split(".")
    for name in above:
        where = where[name]
    if value is DROP:
        del where[last]
    else:
        where[last] = value
    raised = raises(mc.FormatError, mc.Job.from_dict, values, match=told)
    assert path.split(".")[0] in raised.field or told == "is no JSON"
    assert "hunter" not in str(raised)
    assert not s3.requests


@pytest.mark.parametrize("wrong", ["{}", b"{}", None, [], 1])
def test_what_is_no_dict_is_a_type_error(s3: MemoryStore, wrong: Any) -> None:
    """JSON that was not read, or another value: the message says what it got."""
    for cls in (mc.Job, mc.TaskCommit):
        raises(TypeError, cls.from_dict, wrong, match=f"needs a dict, not {type(wrong).__name__}")

"""Our files in real Hadoop's jobs, our jobs beside Hadoop's, and what each reads of the other's."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import magic_committer as mc
from magic_committer.cli import exits
from magic_committer.cli.main import run
from magic_committer.hadoop.documents import decode_success
from magic_committer.options import ChecksumOption
from magic_committer.stores.s3 import S3Store
from tests.interop.jvm import HadoopsJob, Jvm
from tests.interop.lake import BUCKET, Lake

ORDERS = ("hadoop first", "ours first")
MINE = {"a.csv": b"ours 1\n", "p=0/b.csv": b"ours 2\n" * 500}


@pytest.fixture
def dest(hadoop: Jvm, request: pytest.FixtureRequest) -> str:
    """A destination of the test's own, below the bucket."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"beside-{name.strip('-')}"


def theirs(hadoop: Jvm, dest: str, **more: object) -> HadoopsJob:
    """A job of Hadoop's, set up."""
    return HadoopsJob(hadoop, f"{BUCKET}/{dest}", "theirs", **more).setup()


def publish_ours(dest: str) -> mc.JobReport:
    """A job of ours, committed."""
    with mc.write(f"s3://{BUCKET}/{dest}") as job:
        for name, content in MINE.items():
            with job.open(name) as file:
                file.write(content)
    return job.report


def ours_of(dest: str) -> dict[str, bytes]:
    """What a job of ours publishes, by key."""
    return {f"{dest}/{name}": content for name, content in MINE.items()}


def test_hadoops_committer_commits_our_files(hadoop: Jvm, lake: Lake, dest: str) -> None:
    """Files that we write on a task's magic path, beside Hadoop's own in the same attempt, are
    committed by `MagicS3GuardCommitter`: task, then job. Each release gets the ETags that it reads;
    checksums of parts only the one that completes with them."""
    old = hadoop.release == "3.3.6"
    job = theirs(hadoop, dest)
    checksums: list[ChecksumOption] = ["off"] if old else ["off", "CRC32", "SHA256"]
    for number, checksum in enumerate(checksums, 1):
        task = job.task(number, {f"{checksum}/theirs.csv": b"theirs\n"})
        options = mc.Options(checksum=checksum, etag_form="strings" if old else "objects")
        for name, content in {**MINE, "empty.csv": b""}.items():
            with mc.open_magic(
                f"{task.work}/{checksum}/{name}", fence=False, options=options
            ) as file:
                file.write(content)
            task.wrote(f"{checksum}/{name}", content)
        task.commit()
    job.tasks(1)
    job.commit()
    assert lake.visible(dest) == job.files
    assert len(job.files) == 4 * len(checksums) + 2
    assert (lake.control(dest), lake.open_uploads(dest)) == ([], [])


@pytest.mark.parametrize("order", ORDERS)
def test_both_publish_into_one_destination(hadoop: Jvm, lake: Lake, dest: str, order: str) -> None:
    """One after the other, in each order: all files of both are there, and `_SUCCESS` is of the
    later one."""
    if order == "ours first":
        publish_ours(dest)
    job = theirs(hadoop, dest).tasks(2)
    job.commit()
    if order == "hadoop first":
        publish_ours(dest)
    assert lake.visible(dest) == {**job.files, **ours_of(dest)}
    written_by_us = b"magic-committer" in lake.read(f"{dest}/_SUCCESS")
    assert written_by_us is (order == "hadoop first")
    assert lake.open_uploads(dest) == []


@pytest.mark.parametrize("order", ORDERS)
def test_both_run_at_once_where_hadoop_leaves_other_uploads_alone(
    hadoop: Jvm, lake: Lake, dest: str, order: str
) -> None:
    """With ``fs.s3a.committer.abort.pending.uploads=false`` two jobs that overlap publish both,
    whoever commits first; and our clean-up beside a live Hadoop job touches nothing of it."""
    job = theirs(hadoop, dest, fs_s3a_committer_abort_pending_uploads="false").tasks(2)
    mine = mc.start(f"s3://{BUCKET}/{dest}")
    with mine.task("1") as task:
        for name, content in MINE.items():
            with task.open(name) as file:
                file.write(content)
    mc.cleanup(f"s3://{BUCKET}/{dest}", leftover_after=0)
    ends: list[Callable[[], object]] = [job.commit, mine.commit]
    for end in ends if order == "hadoop first" else reversed(ends):
        end()
    assert lake.visible(dest) == {**job.files, **ours_of(dest)}
    assert lake.open_uploads(dest) == []


def test_hadoops_default_aborts_our_open_uploads_and_we_say_so(
    hadoop: Jvm, lake: Lake, dest: str
) -> None:
    """Left at its default, Hadoop's commit aborts every upload under the destination: our job is
    refused before its decision, names the files, and publishes nothing."""
    job = theirs(hadoop, dest).tasks(1)
    mine = mc.start(f"s3://{BUCKET}/{dest}")
    with mine.task("1") as task, task.open("a.csv") as file:
        file.write(b"lost")
    job.commit()
    with pytest.raises(mc.CommitRefused, match="not open any more"):
        mine.commit()
    assert lake.visible(dest) == job.files


def test_an_aborted_hadoop_job_leaves_ours(hadoop: Jvm, lake: Lake, dest: str) -> None:
    """Its abort deletes its own tree only: what we have published stays."""
    publish_ours(dest)
    job = theirs(hadoop, dest).tasks(2)
    job.abort()
    assert lake.visible(dest) == ours_of(dest)


def test_hadoop_reads_our_success(hadoop: Jvm, lake: Lake, dest: str) -> None:
    """`SuccessData.load` takes our `_SUCCESS`: job, committer, host, names and metrics."""
    report = publish_ours(dest)
    job = theirs(hadoop, f"{dest}-x")
    files = hadoop.classes.fs.s3a.commit.files
    path = hadoop.classes.fs.Path(f"s3a://{BUCKET}/{dest}/_SUCCESS")
    read = files.SuccessData.load(job.fs, path)
    assert (read.getJobId(), read.getCommitter()) == (report.job_id, "magic")
    assert sorted(read.getFilenames()) == [f"/{key}" for key in sorted(ours_of(dest))]
    assert read.getDiagnostics()["magic-committer.files"] == str(len(MINE))


def test_we_read_hadoops_success(
    hadoop: Jvm, lake: Lake, dest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """``inspect`` prints the `_SUCCESS` of a real job."""
    job = theirs(hadoop, dest).tasks(2)
    job.commit()
    url = f"s3://{BUCKET}/{dest}/_SUCCESS"
    assert run(["inspect", url, "--format", "json"]) == exits.OK
    told = json.loads(capsys.readouterr().out)
    assert (told["job"], told["committer"]) == (job.id, "magic")
    assert sorted(told["filenames"]) == [f"/{key}" for key in sorted(job.files)]


def test_a_success_with_fractions_is_read_by_both_alike(
    hadoop: Jvm, lake: Lake, store: S3Store, dest: str
) -> None:
    """A fraction among the metrics, a number and true among the diagnostics: Hadoop reads them, and
    we read what it reads."""
    document = {
        "name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1",
        "metrics": {"a": 2.75, "b": -0.5, "c": 7},
        "diagnostics": {"n": 8, "f": 1.5, "t": True, "s": "x"},
    }
    key = f"{dest}/_SUCCESS"
    store.put(key, json.dumps(document).encode())
    job = theirs(hadoop, f"{dest}-x")
    files = hadoop.classes.fs.s3a.commit.files
    read = files.SuccessData.load(job.fs, hadoop.classes.fs.Path(f"s3a://{BUCKET}/{key}"))
    mine = decode_success(lake.read(key), key)
    assert dict(read.getMetrics()) == mine.metrics == {"a": 2, "b": 0, "c": 7}
    assert dict(read.getDiagnostics()) == mine.diagnostics

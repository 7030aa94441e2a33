"""Many processes on a real server: start here, write there, commit elsewhere; no secret leaks."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import boto3
import pytest

import magic_committer as mc
from tests.servers import moto_server

SENTINELS = {
    "AWS_ACCESS_KEY_ID": "AKIASENTINEL00KEY",
    "AWS_SECRET_ACCESS_KEY": "SENTINEL/secret/0123456789abcdef",
    "AWS_SESSION_TOKEN": "SENTINELsessiontoken0123456789abcdef",
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """moto's server, found by every process through the environment alone."""
    with moto_server("bucket") as url:
        before = dict(os.environ)
        os.environ.update(AWS_ENDPOINT_URL=url, AWS_REGION="us-east-1", **SENTINELS)
        try:
            yield url
        finally:
            os.environ.clear()
            os.environ.update(before)


def seen(prefix: str) -> dict[str, bytes]:
    """All objects below a prefix, as any S3 client sees them."""
    client = boto3.client("s3")
    found = client.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
    return {
        o["Key"]: client.get_object(Bucket="bucket", Key=o["Key"])["Body"].read() for o in found
    }


def open_uploads(prefix: str) -> list[str]:
    """Keys of open uploads below a prefix."""
    listed = boto3.client("s3").list_multipart_uploads(Bucket="bucket", Prefix=prefix)
    return [u["Key"] for u in listed.get("Uploads", [])]


def write_task(job: mc.Job, number: int) -> dict[str, Any]:
    """A worker's work: one task; its result as JSON."""
    with job.task(number) as task, task.open(f"part-{number}.csv", "w") as f:
        f.write(f"{number}\n" * 1000)
    return task.result.to_dict()


def close_by_path(dest: str, number: int) -> None:
    """A worker that knows nothing but a path."""
    path = f"{dest}/__magic_job-j1/job-j1/00/tasks/a_{number}/__base/part-{number}.csv"
    with mc.open_magic(path, "w") as f:
        f.write(f"{number}\n")


def commit_task(dest: str, number: int) -> dict[str, Any]:
    """A worker that commits what another wrote."""
    return mc.attach(dest, "j1").task(number, attempt=f"a_{number}").commit().to_dict()


def test_tasks_in_other_processes_commit_by_results(server: str) -> None:
    """A job value travels to spawned processes, their results come back as JSON, one commits."""
    job = mc.start("s3://bucket/spawned", track="memory", accept="results")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as workers:
        results = list(workers.map(write_task, [job] * 4, range(4)))
    assert seen("spawned/") == {
        f"spawned/__magic_job-{job.id}/{k}": v
        for k, v in _below(seen("spawned/"), f"spawned/__magic_job-{job.id}/").items()
    }
    report = job.commit([mc.TaskCommit.from_dict(r) for r in json.loads(json.dumps(results))])
    assert report.files == 4
    assert sorted(seen("spawned/")) == [
        "spawned/_SUCCESS",
        *(f"spawned/part-{n}.csv" for n in range(4)),
    ]
    assert open_uploads("spawned/") == []


def _below(objects: dict[str, bytes], prefix: str) -> dict[str, bytes]:
    return {k.removeprefix(prefix): v for k, v in objects.items() if k.startswith(prefix)}


def test_open_in_one_process_commit_in_another_by_names_alone(server: str) -> None:
    """Files by path in some processes, task commits in others, the job's commit in a third."""
    dest = "s3a://bucket/named"
    mc.start(dest, job_id="j1")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as writers:
        list(writers.map(close_by_path, [dest] * 3, range(3)))
    assert len(open_uploads("named/")) == 3
    with ProcessPoolExecutor(1, mp_context=context) as committers:
        list(committers.map(commit_task, [dest] * 3, range(3)))
    report = mc.attach(dest, "j1").commit(expect=[str(n) for n in range(3)])
    assert report.files == 3
    assert open_uploads("named/") == []
    assert sorted(seen("named/")) == [
        "named/_SUCCESS",
        "named/__magic_job-j1/_job.json",
        *(f"named/part-{n}.csv" for n in range(3)),
    ]


def test_no_secret_is_logged_told_or_stored(server: str, caplog: pytest.LogCaptureFixture) -> None:
    """Key, secret and session token appear in no log line at DEBUG, of ours or the SDK's, in no
    error and its chain, in no pickle, and in no stored object: in success and in failure."""
    import pickle

    texts: list[str] = []
    explicit = mc.S3Options(
        access_key="AKIASENTINEL0EXPLICIT",
        secret_key="SENTINEL/explicit/secret/012345",
        session_token="SENTINEL/explicit/token/0123456",
        transport="boto3",
    )
    with caplog.at_level(logging.DEBUG):
        for s3 in (None, explicit):
            with mc.write("s3://bucket/secret", s3=s3) as job, job.open("a.csv") as f:
                f.write(b"1")
            texts += [repr(job), repr(job.report), repr(pickle.dumps(job.job)), repr(s3)]
            left = mc.start("s3://bucket/secret", s3=s3, job_id=f"left-{s3 is None}")
            with left.task("1") as task, task.open("b.csv") as f:
                f.write(b"2")
            texts += [repr(left), repr(task), repr(pickle.dumps(task.result))]
            for failing in ("s3://no-such-bucket-here/x", "s3://bucket/secret"):
                try:
                    mc.attach(failing, "absent", s3=s3)
                    raise AssertionError("attach must fail")
                except mc.MagicError as error:
                    texts += ["".join(traceback.format_exception(error)), repr(error)]
                    texts.append(repr(pickle.dumps(error)))
    texts += [record.getMessage() for record in caplog.records]
    texts += [str(record.args) for record in caplog.records]
    texts += [f"{key} {body!r}" for key, body in seen("secret/").items()]
    assert any("botocore" in record.name for record in caplog.records)
    found = [text[:200] for text in texts if "SENTINEL" in text.replace("AKIASENTINEL", "")]
    assert found == []
    secret_ids = [text[:300] for text in texts if "AKIASENTINEL" in text]
    assert secret_ids == []


def test_the_example_of_many_processes_does_what_it_says(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """examples/processes.py: four tasks in two processes, one commit."""
    from examples import processes

    processes.main("s3://bucket/example")
    assert "4 files" in capsys.readouterr().out
    assert len(seen("example/")) == 5
    assert open_uploads("example/") == []

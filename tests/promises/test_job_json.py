"""A job travels as JSON as it does as a pickle: whole, and without a secret."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, committed_task, raises, visible

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


def test_tasks_and_commit_run_on_copies(s3: MemoryStore) -> None:
    """Start here, task there, commit elsewhere: as with the job itself."""
    values = sent(mc.start(DEST, mode="overwrite", job_id="1"))
    result = committed_task(mc.Job.from_dict(values), "1", {"a.csv": b"1"})
    again = mc.TaskCommit.from_dict(json.loads(json.dumps(result.to_dict())))
    assert mc.Job.from_dict(values).commit([again], expect=["1"]).outcome == "committed"
    assert visible(s3) == {"t/a.csv": b"1"}


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


def test_no_secret_is_in_it(s3: MemoryStore) -> None:
    """``from_dict(..., s3=...)`` gives them where it arrives, and is not in the dict."""
    text = json.dumps(mc.start(DEST, s3=SECRETS).to_dict())
    assert "hunter" not in text.lower()
    assert "http://minio:9000" in text
    copy = mc.Job.from_dict(sent(mc.start(DEST)), s3=SECRETS)
    assert copy._s3 is SECRETS
    assert "hunter" not in json.dumps(copy.to_dict()).lower()


def test_a_job_of_write_does_not_travel(s3: MemoryStore) -> None:
    """Its files are in one process, which alone may delete the record (I10)."""
    with mc.write(DEST) as writing, pytest.raises(mc.MagicError, match="does not travel"):
        writing.job.to_dict()
    assert mc.Job.from_dict(sent(writing.job)).outcome == "committed"
    assert mc.Job.from_dict(sent(mc.start(DEST))).commit(expect=0).state == "closed"


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
        raises(TypeError, cls.from_dict, wrong, match=f"takes a dict, not {type(wrong).__name__}")

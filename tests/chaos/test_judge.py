"""The judge notices each kind of lie, loss and growth: a checker that cannot fail proves nothing.
`python -m tests.chaos soak` runs the jobs."""

from __future__ import annotations

import contextlib
import hashlib
from itertools import islice
from typing import Any

import pytest

import magic_committer as mc
from magic_committer.options import Transport
from magic_committer.stores.base import Written
from magic_committer.stores.s3 import S3Store
from tests.chaos.conftest import BUCKET
from tests.chaos.jobs import Round, Way, run
from tests.chaos.judge import Operator, lies
from tests.chaos.proxy import Weather, drawn_spells, through
from tests.chaos.soak import SAMPLES_MIN, Figures, Sample
from tests.outside import Found, Outside
from tests.promises.hands import until

JOB = Round(1, "replace", 5, 7)
WHOLE = Found(files=JOB.expected(), marked=True)
NONE = Found(files={"dt=0/old.csv": hashlib.md5(JOB.old["dt=0/old.csv"]).hexdigest()})
PART = Found(files=dict(islice(JOB.expected().items(), 3)), marked=True)
OTHER = Found(files={**JOB.expected(), next(iter(JOB.expected())): "0" * 32}, marked=True)


@pytest.mark.parametrize("found", [WHOLE, NONE, PART, OTHER, WHOLE._replace(marked=False)])
@pytest.mark.parametrize(
    "told", ["committed", "aborted", "reverted", "not started", "", "going on"]
)
def test_what_was_told_is_held_against_what_is_there(told: str, found: Found) -> None:
    """Committed means all files, byte for byte, and the marker; everything else none, and the old
    ones; nothing told: one of the two. While it goes on no strange file is there."""
    true = {"committed": (WHOLE,), "": (WHOLE, NONE)}.get(told, (NONE,))
    assert (lies(told, found, JOB) == "") == (
        found != OTHER if told == "going on" else found in true
    )


def test_only_what_was_named_may_be_lost() -> None:
    """Of an unresolved job the files that are missing are those that the library named."""
    missing = JOB.expected().keys() - PART.files.keys()
    assert lies("unresolved", PART, JOB, missing) == ""
    assert "not told as lost" in lies("unresolved", PART, JOB, list(missing)[1:])


def samples(megabytes: int, descriptors: int, *sockets: int) -> list[Sample]:
    """What a process had that lived on."""
    return [Sample(megabytes * 2**20, descriptors, one) for one in sockets]


@pytest.mark.parametrize(
    ("last", "wrong"),
    [
        (samples(110, 12, *[64] * SAMPLES_MIN), ""),
        (samples(150, 10, *[20] * SAMPLES_MIN), "memory grew"),
        (samples(100, 19, *[20] * SAMPLES_MIN), "descriptors grew"),
        (samples(100, 10, *[20] * SAMPLES_MIN, 150), "150 sockets were open"),
    ],
)  # fmt: skip
def test_growth_is_noticed(last: list[Sample], wrong: str) -> None:
    """More memory or more descriptors than in the third before is wrong, and more sockets than the
    pool may hold; some noise is not, nor is a pool that fills."""
    figures = Figures(samples=samples(100, 10, *[20] * 2 * SAMPLES_MIN) + last)
    figures.judge_growth()
    assert len(figures.wrong) == bool(wrong)
    assert wrong in "".join(figures.lines())


def test_the_checker_sees_files_and_leaks_and_the_operator_ends_them(url: str) -> None:
    """From outside: a committed job's files, parts and empty ones too; an open upload and a record
    that is not closed, until somebody has ended the job."""
    s3, bucket, job = Way(url).s3(), Outside(Way(url).s3(), BUCKET), Round(2, files=80)
    assert run(Way(url), BUCKET, job).outcome == "committed"
    assert bucket.look(job.dest) == Found(files=job.expected(), marked=True)
    file = mc.start(f"s3://{BUCKET}/left", s3=s3).task(0).open("open", unique=True)
    file.write(b"1" * (9 * 2**20))
    assert bucket.look("left").control[0].endswith("/_job.json")
    until(lambda: bucket.uploads("left"))  # its Create is sent beside the writer
    assert Operator(BUCKET, s3).end(Round(3, named="left")) == ("aborted", ())
    file.abort()
    assert bucket.look("left") == Found()


@pytest.mark.parametrize("ending", ["recover", "cleanup"])
def test_the_operator_takes_what_is_lost_as_it_is(
    url: str, monkeypatch: pytest.MonkeyPatch, ending: Any
) -> None:
    """Where the store has lost a decided upload the job ends as unresolved, with its name, also
    where a cleanup found it first; the judge finds that file missing, and no other."""
    by_boto3 = Way(url, "boto3")  # the fast way's many at once do not pass by `lose`
    job = Round(4, files=5, ending=ending)

    def lose(self: S3Store, key: str, upload_id: str, *rest: Any, **terms: Any) -> Written:
        if "part-002" not in key:
            return complete_upload(self, key, upload_id, *rest, **terms)
        with contextlib.suppress(mc.StoreError):
            self.abort_upload(key, upload_id)
        raise mc.NotFound("gone", status=404, code="NoSuchUpload")

    complete_upload = S3Store.complete_upload
    monkeypatch.setattr(S3Store, "complete_upload", lose)
    assert run(by_boto3, BUCKET, job).outcome == "incomplete"
    ended = Operator(BUCKET, by_boto3.s3()).end(job, "incomplete")
    assert ended == ("unresolved", ("dt=2/part-002",))
    found = Outside(by_boto3.s3(), BUCKET).look(job.dest)
    assert lies("unresolved", found, job, ended[1]) == ""
    assert lies("committed", found, job) != ""


@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_a_job_in_bad_weather_is_told_the_truth(transport: Transport, url: str) -> None:
    """A whole job by each transport, while every kind of weather but slow replies, which take long,
    changes every tenth of a second, ends, and what is there is what was told."""
    with through(Weather(7), url) as between:
        between.spells = ((one, 0.1) for one, _ in drawn_spells(7) if one != "slow reply")
        there, job = Way(between.url, transport), Round(5, files=6, named=f"bad-{transport}")
        told = run(there, BUCKET, job, there.s3(retry_attempts_max=100))
        ended, lost = Operator(BUCKET, Way(url).s3()).end(job, told.outcome)
    assert lies(ended, Outside(Way(url).s3(), BUCKET).look(job.dest), job, lost) == ""
    assert between.met.total() > between.met["passed"] > 0

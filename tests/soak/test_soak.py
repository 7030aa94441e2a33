"""The soak's judge notices: each kind of lie, loss, leak and growth. `tests.soak` itself runs the
jobs: a minute of it in CI, as many as are wanted by `make soak MINUTES=60`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, get_args

import pytest

import magic_committer as mc
from magic_committer.options import Transport
from magic_committer.stores.base import Written
from magic_committer.stores.s3 import S3Store
from tests.outside import Outside
from tests.servers import (
    HurriedClock,
    Reply,
    ScriptedServer,
    moto_options,
    moto_server,
    scripted_server,
    way,
)
from tests.soak import plan
from tests.soak.jobs import BLOCKS, Steady, Told, Way, run
from tests.soak.judging import Found, Operator, before, expected, lies, look
from tests.soak.plan import Ending, Round
from tests.soak.soak import SAMPLES_MIN, Figures
from tests.soak.weather import Spell, drawn, weather

JOB = Round(1, "replace", 5, 7, None, None, 0.0, "recover")
WHOLE = Found(files=expected(JOB), marked=True)
NONE = Found(files=before(JOB))
PART = Found(files=dict(islice(expected(JOB).items(), 3)), marked=True)
OTHER = Found(files={**expected(JOB), next(iter(expected(JOB))): "0" * 32}, marked=True)


@pytest.mark.parametrize("found", [WHOLE, NONE, PART, OTHER, WHOLE._replace(marked=False)])
@pytest.mark.parametrize("told", ["committed", "aborted", "reverted", "not started", ""])
def test_what_was_told_is_held_against_what_is_there(told: str, found: Found) -> None:
    """Committed means all files, byte for byte, and the marker; everything else none, and the old
    ones; nothing told: one of the two."""
    true = {"committed": (WHOLE,), "": (WHOLE, NONE)}.get(told, (NONE,))
    assert (lies(told, found, JOB) == "") == (found in true)


def test_only_what_was_named_may_be_lost() -> None:
    """Of an unresolved job the files that are missing are those that the library named."""
    missing = expected(JOB).keys() - PART.files.keys()
    assert lies("unresolved", PART, JOB, missing) == ""
    assert "not told as lost" in lies("unresolved", PART, JOB, list(missing)[1:])


def samples(megabytes: int, *descriptors: int) -> list[Steady]:
    """What a driver that lived on has told."""
    return [Steady(JOB, Told("committed"), megabytes * 2**20, one) for one in descriptors]


CALM = samples(100, *[30] * 2 * SAMPLES_MIN)


@pytest.mark.parametrize(
    ("last", "wrong"),
    [
        (samples(100, *[30] * SAMPLES_MIN), ""), (samples(110, *[35] * SAMPLES_MIN), ""),
        (samples(150, *[30] * SAMPLES_MIN), "memory grew"),
        (samples(100, *[80] * SAMPLES_MIN), "descriptors grew"),
        (samples(100, *[90] * (SAMPLES_MIN - 1), 25), ""),
        (samples(100, *[90] * (SAMPLES_MIN - 1), 60), "descriptors grew"),
    ],
)  # fmt: skip
def test_growth_is_noticed(last: list[Steady], wrong: str) -> None:
    """More memory or more descriptors than in the third before is wrong; some noise is not, nor is
    a pool that is full in most samples, and empty now and then."""
    figures = Figures(steady=CALM + last)
    figures.judge_growth()
    assert len(figures.wrong) == bool(wrong)
    assert wrong in "".join(figures.wrong)
    assert list(figures.lines())


@pytest.fixture
def url() -> Iterator[str]:
    """moto's server, with an empty bucket."""
    with moto_server("bucket") as url:
        yield url


def test_the_checker_sees_files_leaks_and_the_marker(url: str) -> None:
    """From outside: a committed job's files by their names and ETags, parts and empty ones too; an
    open upload; a record that is not closed."""
    job = replace(JOB, kind="memory", files=80)
    s3 = moto_options(url)
    bucket = Outside(s3, "bucket")
    with mc.write(f"s3://bucket/{job.dest}", s3=s3, options=BLOCKS) as writing:
        for name, body in job.contents().items():
            with writing.open(f"{name}.txt", unique=True) as file:
                file.write(body)
    assert look(bucket, job.dest) == Found(files=expected(job), marked=True)
    left = mc.start(f"s3://bucket/{job.dest}", s3=s3)
    file = left.task(0).open("open", unique=True)
    file.write(b"1" * (9 * 2**20))
    found = look(bucket, job.dest)
    assert [key.rpartition("/")[2] for key in found.control] == ["_job.json"]
    left.abort()
    file.abort()


def test_the_operator_ends_what_a_driver_left(url: str) -> None:
    """A job that was left running is ended, by each way, and then nothing of it is there."""
    s3 = moto_options(url)
    operator = Operator("bucket", s3)
    for number, ending in enumerate(get_args(plan.Ending)):
        job = replace(JOB, number=number, kind="memory", ending=ending)
        task = mc.start(f"s3://bucket/{job.dest}", s3=s3).task(0)
        with task, task.open("a.txt", unique=True) as file:
            file.write(b"1")
        assert operator.end(job, "").outcome == "aborted"
        assert look(Outside(s3, "bucket"), job.dest) == Found()
    assert operator.used == {"recover": 1, "abort": 1, "cleanup": 1}


@pytest.mark.parametrize("ending", ["recover", "cleanup"])
def test_the_operator_takes_what_is_lost_as_it_is(
    url: str, monkeypatch: pytest.MonkeyPatch, ending: Ending
) -> None:
    """Where the store has lost a decided upload the job ends as unresolved, with its name, also
    where a cleanup found it first; the judge finds that file missing, and no other."""
    # The fast way's many at once do not pass by `lose`.
    s3 = replace(moto_options(url), transport="boto3")
    job = replace(JOB, kind="memory", number=200 + get_args(Ending).index(ending), ending=ending)

    def lose(self: S3Store, key: str, upload_id: str, *rest: Any, **terms: Any) -> Written:
        if "part-002" not in key:
            return complete_upload(self, key, upload_id, *rest, **terms)
        with contextlib.suppress(mc.StoreError):
            self.abort_upload(key, upload_id)
        raise mc.NotFound("gone", status=404, code="NoSuchUpload")

    complete_upload = S3Store.complete_upload
    monkeypatch.setattr(S3Store, "complete_upload", lose)
    assert run(Way(url), "bucket", job, s3=s3).outcome == "incomplete"
    ended = Operator("bucket", s3).end(job, "incomplete")
    assert (ended.outcome, ended.lost) == ("unresolved", ("dt=2/part-002",))
    found = look(Outside(s3, "bucket"), job.dest)
    assert expected(job).keys() - found.files.keys() == set(ended.lost)
    assert lies("unresolved", found, job, ended.lost) == ""
    assert lies("committed", found, job) != ""


# Weather ------------------------------------------------------------------------------------------


def asked_in(kind: str, upstream: ScriptedServer, **more: Any) -> Written:
    """What becomes of a small PUT whose first try meets this weather, the others none."""
    with weather(upstream.url, 1) as between:
        calm = (Spell("fair", 0.0), 60.0)
        between.spells = iter([(Spell(kind, 1.0), 0.0), calm])
        store = S3Store("b", way(between.url, **more), clock=HurriedClock())
        written = store.put("k", b"body" * 100)
    assert (between.met[kind], between.met["passed"]) == (1, written.attempts - 1)
    return written


@pytest.mark.parametrize("transport", ["boto3", "fast"])
@pytest.mark.parametrize(
    ("kind", "attempts", "arrived"),
    [
        ("reset in the request", 2, 1), ("reset in the reply", 2, 2), ("truncated reply", 2, 2),
        ("503 storm", 2, 1), ("late reply", 1, 1), ("slow reply", 1, 1),
    ],
)  # fmt: skip
def test_each_kind_of_weather_strikes(
    kind: str, attempts: int, arrived: int, transport: str
) -> None:
    """A request that is struck is sent again where it has no whole answer, and the store gets what
    the kind says: nothing of a reset before it, all of one behind it."""
    with scripted_server(lambda _: Reply(headers={"ETag": '"e"'})) as upstream:
        assert asked_in(kind, upstream, transport=transport).attempts == attempts
        assert [asked.body for asked in upstream.asked] == [b"body" * 100] * arrived


@pytest.mark.parametrize("transport", ["boto3", "fast"])
def test_a_job_in_bad_weather_is_told_the_truth(transport: Transport, url: str) -> None:
    """A whole job by each transport, while every kind of weather but slow replies, which take long,
    changes every tenth of a second, ends, and what is there is what was told."""
    with weather(url, 7) as between:
        between.spells = ((one, 0.1) for one, _ in drawn(7) if one.name != "slow reply")
        s3 = replace(moto_options(between.url), transport=transport, retry_attempts_max=100)
        job = replace(JOB, kind="memory", number=300, files=12)
        told = run(Way(between.url), "bucket", job, s3=s3)
        ended = Operator("bucket", moto_options(url)).end(job, told.outcome)
    found = look(Outside(moto_options(url), "bucket"), job.dest)
    assert lies(ended.outcome, found, job, ended.lost) == ""
    assert between.met.total() > between.met["passed"] > 0

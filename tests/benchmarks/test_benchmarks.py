"""What `make bench` stands on: the server answers rightly and counts, contenders run and are
checked, tables say what was measured. Nothing here is timed."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from benchmarks import plan, report, rounds, server, spark
from benchmarks.__main__ import arguments, settings_of
from benchmarks.measure import Machine, Run, machine
from benchmarks.plan import Contender, Failed, Measurement
from benchmarks.rounds import Outcome, Settings
from benchmarks.server import Server
from benchmarks.writers import BUCKET, MiB, pieces
from magic_committer.options import Options
from magic_committer.stores.checksum import of

PART = 5 * MiB


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    if shutil.which("go") is None:
        pytest.skip("there is no `go` on the PATH to build the server")
    with server.fast() as one:
        yield one


@pytest.fixture
def on(running: Server) -> Iterator[Machine]:
    """What runs contenders; the peers are those of this environment."""
    with machine(running, Path(sys.executable)) as made:
        yield made


def client(url: str, authority: str = "") -> Any:
    """The SDK's client; ``authority``: the certificate that it trusts."""
    return boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a",
        aws_secret_access_key="b", verify=authority or None,
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )  # fmt: skip


def opened(s3: Any, key: str) -> dict[str, str]:
    """What names a new upload."""
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
    return {"Bucket": BUCKET, "Key": key, "UploadId": upload}


# The servers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("verify", [False, True])
def test_requests_and_bytes_are_counted(running: Server, verify: bool) -> None:
    """Each request counts once under its verb, each part with its bytes; the CRC32 of the whole is
    right where it is asked for, and absent where not."""
    running.reset(verify=verify)
    s3 = client(running.url)
    named = opened(s3, "k")
    bodies = [b"".join(pieces(PART)), b"the end"]
    done = [
        {"PartNumber": n, "ETag": s3.upload_part(**named, PartNumber=n, Body=body)["ETag"]}
        for n, body in enumerate(bodies, 1)
    ]
    assert running.facts()["open_uploads"] == 1
    s3.complete_multipart_upload(**named, MultipartUpload={"Parts": done})
    assert s3.head_object(Bucket=BUCKET, Key="k")["ContentLength"] == PART + 7
    facts = running.facts()
    assert facts["requests"] == {
        "CreateMultipartUpload": 1, "UploadPart": 2, "CompleteMultipartUpload": 1, "HeadObject": 1,
    }  # fmt: skip
    assert (facts["part_bytes"], facts["payload"]) == (PART, "SHA-256")
    crc32 = of("CRC32", b"".join(bodies)).value if verify else None
    assert facts["objects"]["k"] == {"size": PART + 7, "crc32": crc32}
    assert facts["open_uploads"] == 0


def test_small_objects_are_kept_and_conditions_hold(running: Server) -> None:
    """A small object is read back as it was written (the fast server says names in title case, as
    Go does); If-None-Match and If-Match decide."""
    running.reset(verify=False)
    s3 = client(running.url)
    named = {"Bucket": BUCKET, "Key": "a/b c"}
    etag = s3.put_object(**named, Body=b"1", Metadata={"m": "v"}, IfNoneMatch="*")["ETag"]
    assert s3.head_object(**named)["Metadata"] == {"M": "v"}
    for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"other"'}):
        with pytest.raises(ClientError, match="PreconditionFailed"):
            s3.put_object(**named, Body=b"2", **condition)
    s3.put_object(**named, Body=b"2", IfMatch=etag)
    with pytest.raises(ClientError, match="NoSuchKey"):
        s3.put_object(Bucket=BUCKET, Key="none", Body=b"2", IfMatch=etag)
    assert s3.get_object(**named)["Body"].read() == b"2"
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="a/", Delimiter="/")["KeyCount"] == 1
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "a/b c"}]})
    assert running.facts()["objects"] == {}


def test_answers_wait_for_the_latency(running: Server) -> None:
    """With a latency of 30 ms no answer comes sooner, and resetting ends it."""
    running.reset(verify=False, latency_ms=30)
    s3 = client(running.url)
    began = time.monotonic()
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"")
    assert time.monotonic() - began >= 0.03
    running.reset(verify=False)
    assert running.facts()["requests"] == {}


def test_listings_of_the_fast_server_have_pages(running: Server) -> None:
    """Objects, common prefixes and open uploads come in order, page by page, each once, whatever
    was deleted between; names with blanks and signs are whole."""
    running.reset(verify=False)
    s3 = client(running.url)
    keys = sorted(f"l/{n // 3}/{n} ü&<" for n in range(9))
    for key in reversed(keys):
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"")
    named = {"Bucket": BUCKET, "Prefix": "l/", "PaginationConfig": {"PageSize": 2}}
    objects = s3.get_paginator("list_objects_v2")
    listed = [list(p.get("Contents", ())) for p in objects.paginate(**named)]
    assert [one["Key"] for page in listed for one in page] == keys
    assert [len(page) for page in listed] == [2, 2, 2, 2, 1]
    prefixes = [p.get("CommonPrefixes", ()) for p in objects.paginate(**named, Delimiter="/")]
    assert [one["Prefix"] for page in prefixes for one in page] == ["l/0/", "l/1/", "l/2/"]
    s3.delete_object(Bucket=BUCKET, Key=keys[0])
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="l/")["KeyCount"] == 8
    ids = [opened(s3, f"u/{n // 2}")["UploadId"] for n in range(7)]
    s3.abort_multipart_upload(Bucket=BUCKET, Key="u/1", UploadId=ids[2])
    uploads = s3.get_paginator("list_multipart_uploads")
    found = [u for p in uploads.paginate(**{**named, "Prefix": "u/"}) for u in p["Uploads"]]
    assert [one["UploadId"] for one in found] == [*ids[:2], *ids[3:]]


# Runs ---------------------------------------------------------------------------------------------


def measurement(name: str) -> Measurement:
    """One of the plan."""
    (found,) = [one for one in plan.plan() if one.whole_name == name]
    return found


def ours(one: Measurement) -> list[Contender]:
    """The contenders of ours: one for each transport."""
    return [c for c in one.contenders if c.home == "ours"]


def test_a_file_is_streamed(on: Machine) -> None:
    """Ours, by each transport, and the SDK's: one file, whole and of the right CRC32."""
    one = measurement("streaming-http")
    for contender in (*ours(one), *(c for c in one.contenders if c.name == "boto3")):
        run = on.run(one, contender, 36 * MiB, verify=True)
        assert run.requests["CompleteMultipartUpload"] == 1
        assert run.grown_bytes is not None
        assert min(run.seconds, run.cpu_seconds) > 0
    fast = on.run(one, ours(one)[0], 12 * MiB)
    assert (fast.payload, fast.checksum) == ("UNSIGNED-PAYLOAD", Options().checksum_algorithm)


@pytest.mark.parametrize(
    ("name", "amount"), [("commit-0ms", 120), ("small-files", 10), ("requests-job", 80)]
)
def test_a_job_of_ours_is_measured(on: Machine, name: str, amount: int) -> None:
    """A commit completes each seeded upload once; small files and whole jobs are completed."""
    one = measurement(name)
    for contender in ours(one):
        made = on.run(one, contender, amount).requests
        assert made["CompleteMultipartUpload"] == amount
        assert name != "commit-0ms" or made.get("UploadPart", 0) == 0


def test_files_are_published_on_a_disk(on: Machine) -> None:
    """By each committer, and by plain moves: no figure is of fewer files."""
    one = measurement("disk-files")
    for contender in one.contenders:
        assert on.run(one, contender, 1000).figure(one.unit) > 0


def test_bytes_that_are_missing_are_an_error(on: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file on the server that is shorter than what was to be written is no figure."""
    one = measurement("streaming-http")
    real = Server.facts

    def shorter(self: Server) -> dict[str, Any]:
        facts = real(self)
        for found in facts["objects"].values():
            found["size"] -= 1
        return facts

    monkeypatch.setattr(Server, "facts", shorter)
    with pytest.raises(Failed, match="wrote a file of 6291456 bytes"):
        on.run(one, ours(one)[0], 6 * MiB)


def test_a_contender_that_fails_is_named(on: Machine) -> None:
    """A run that fails is an error that says whose and why, never a figure."""
    nobody = Contender("nobody", "ours", "no_such_library")
    with pytest.raises(Failed, match=r"nobody failed:[\s\S]*KeyError: 'no_such_library'"):
        on.run(measurement("streaming-http"), nobody, MiB)


# The plan and the rounds --------------------------------------------------------------------------


def test_every_measurement_has_its_peer_among_its_contenders() -> None:
    """Names are unique, the peer of the ratios takes part, and ours is there."""
    measurements = plan.plan()
    names = [one.whole_name for one in measurements]
    assert len(set(names)) == len(names)
    for one in measurements:
        contenders = [c.name for c in one.contenders]
        assert len(set(contenders)) == len(contenders)
        assert one.peer in contenders
        assert any(c.home == "ours" for c in one.contenders)


def test_the_command_line_says_how_much_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    """Quick has a budget that ends within two minutes; the full run has five rounds; --minutes
    limits it, --large multiplies commits. An unknown name ends it and says which there are."""
    quick = settings_of(arguments(["--quick"]))
    assert (quick.quick, quick.budget_seconds < 120) == (True, True)
    full = settings_of(arguments(["--large", "--minutes", "3"]))
    assert (full.rounds, full.scale, full.budget_seconds) == (5, 10, 180)
    with pytest.raises(SystemExit):
        arguments(["--only", "comit"])
    assert "no measurement comit; there are commit, commit-0ms" in capsys.readouterr().err


class PlayedMachine(Machine):
    """Its runs cost nothing; ``broken``: the contender that fails."""

    def __init__(self, broken: str = "") -> None:
        self.order: list[str] = []
        self._broken = broken

    def run(
        self, measurement: Measurement, contender: Contender, amount: int, *, verify: bool = False
    ) -> Run:
        if contender.name == self._broken:
            raise Failed("it is broken")
        self.order.append(contender.name)
        return run_of(contender.name, amount * 1e-9, amount)


def run_of(name: str, seconds: float, amount: int = 10**9) -> Run:
    """A run that never was."""
    return Run(
        contender=name, amount=amount, seconds=seconds, cpu_seconds=1.5, grown_bytes=35 * MiB,
        requests={"UploadPart": 120, "CreateMultipartUpload": 1}, versions={"a": "1"},
    )  # fmt: skip


def test_rounds_take_turns_and_each_starts_with_another() -> None:
    """After a first run of each come the rounds, each with all, each begun by the next one."""
    played = PlayedMachine()
    one = measurement("commit-20ms")
    (outcome,) = rounds.measure_all(played, [one], Settings(rounds=2), lambda _: None)
    names = [c.name for c in one.contenders]
    assert played.order == [*names, *names, *names[1:], names[0]]
    assert len(outcome.runs) == 2 * len(names)


def test_a_contender_that_cannot_run_is_left_out() -> None:
    """The others are measured; the one is named with the reason, and the run counts as failed."""
    one = measurement("commit-20ms")
    said: list[str] = []
    played = PlayedMachine(broken=one.peer)
    (outcome,) = rounds.measure_all(played, [one], Settings(rounds=1), said.append)
    assert outcome.left_out == {one.peer: "it is broken"}
    assert outcome.failed == [one.peer]
    assert one.peer not in {run.contender for run in outcome.runs}
    assert f"  {one.peer} is left out: it is broken" in said
    told = report.results([outcome])
    assert told["left_out"] == {f"commit-20ms: {one.peer}": "it is broken"}
    assert {row["ratio"] for row in told["measurements"][0]["rows"]} == {None}


# Tables, documentation ----------------------------------------------------------------------------


def told_of() -> dict[str, Any]:
    """Results of a commit with two contenders."""
    one = measurement("commit-20ms")
    a, peer = one.contenders[0].name, one.peer
    runs = [
        run_of(name, seconds, 1000)
        for name, seconds in ((a, 1.0), (peer, 2.0), (a, 2.0), (a, 1.25), (peer, 2.0))
    ]
    return report.results([Outcome(one, runs=runs, load=(1.0, 2.0))])


def test_the_table_has_medians_spreads_and_ratios() -> None:
    """One row a contender: the median, the ratio to the peer, the spread, CPU, memory. Where a
    figure is a time, twice the time is half the ratio."""
    (one,) = told_of()["measurements"]
    heading, ours, peer = report.table([one])
    assert heading == ["", "files/s, 20 ms", "min–max", "CPU ms", "MiB"]
    assert ours[1:] == ["800 (1.60)", "500–1,000", "1.50", "35.0"]
    assert peer[1:3] == ["500 (1.00)", "500–500"]
    small = measurement("small-files")
    runs = [run_of(small.contenders[0].name, 2.0), run_of(small.peer, 1.0)]
    (told,) = report.results([Outcome(small, runs=runs)])["measurements"]
    assert [row["ratio"] for row in told["rows"]] == [0.5, 1.0]


def test_the_page_shows_the_figures_that_are_kept() -> None:
    """docs/performance.md is what `--write-docs --from` makes of the JSON; a page without its marks
    is refused."""
    with pytest.raises(ValueError, match="once each"):
        report.placed("no marks", "new")
    kept = json.loads(report.KEPT.read_text(encoding="utf-8"))
    page = report.PAGE.read_text(encoding="utf-8")
    assert report.placed(page, report.block(kept)) == page


def test_sparks_ratios_are_taken_within_rounds() -> None:
    """The ratio to the floor is the median of the rounds' own ratios: a round in which everything
    was slow counts like the others."""
    cases = (spark.FLOOR, spark.OURS, spark.NATIVE)
    seconds = ((1.0, 10.0, 2.0), (1.5, 11.0, 2.2), (0.5, 11.0, 1.0))
    found = {c: [(s, 2 * s) for s in of] for c, of in zip(cases, seconds, strict=True)}

    def told(of: dict[str, list[spark.Took]]) -> list[list[str]]:
        return [[c.strip() for c in row.split("|")][1:-1] for row in spark.table(of).splitlines()]

    floor, ours, _ = told(found)[2:]
    assert floor == ["mapInArrow", "2.00", "1.00–10.00", "1.000", "2.000", "4.00", "1.000"]
    assert ours == ["write_dataframe", "2.20", "1.50–11.00", "1.100", "2.200", "4.40", "1.100"]
    alone = told({spark.FLOOR: found[spark.FLOOR]})
    assert alone[2] == ["mapInArrow", "2.00", "1.00–10.00", "1.000", "4.00", "1.000"]

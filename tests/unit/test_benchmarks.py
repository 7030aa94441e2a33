"""What `make bench` stands on: the local server counts right, the report says what was measured."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from benchmarks import report, server, spark
from benchmarks.measure import Failed, Run, measure
from benchmarks.sampling import Sampler
from benchmarks.server import BUCKET, Server
from benchmarks.wire import Head, Wire, read_body
from benchmarks.writers import MiB, pieces
from magic_committer.checksum import of
from magic_committer.options import Options

PART = 5 * MiB


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server.running() as one:
        yield one


def client(one: Server) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=one.url,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )


@pytest.mark.parametrize("verify", [False, True])
def test_requests_and_bytes_are_counted(running: Server, verify: bool) -> None:
    """Each request counts once under its verb, each part with its bytes; the CRC32 of the whole is
    right where it is asked for, and absent where not."""
    running.reset(verify=verify)
    s3 = client(running)
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="k")["UploadId"]
    named = {"Bucket": BUCKET, "Key": "k", "UploadId": upload}
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
        "CreateMultipartUpload": 1,
        "UploadPart": 2,
        "CompleteMultipartUpload": 1,
        "HeadObject": 1,
    }
    assert (facts["part_bytes"], facts["payload"]) == (PART, "SHA-256")
    crc32 = of("CRC32", b"".join(bodies)).value if verify else None
    assert facts["objects"]["k"] == {"size": PART + 7, "crc32": crc32}
    assert facts["open_uploads"] == 0


def test_small_objects_are_kept_and_conditions_hold(running: Server) -> None:
    """A small object is read back as it was written; If-None-Match and If-Match decide."""
    running.reset(verify=False)
    s3 = client(running)
    named = {"Bucket": BUCKET, "Key": "a/b c"}
    etag = s3.put_object(**named, Body=b"1", Metadata={"m": "v"}, IfNoneMatch="*")["ETag"]
    for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"other"'}):
        with pytest.raises(ClientError, match="PreconditionFailed"):
            s3.put_object(**named, Body=b"2", **condition)
    s3.put_object(**named, Body=b"2", IfMatch=etag)
    got = s3.get_object(**named)
    assert got["Body"].read() == b"2"
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="a/", Delimiter="/")["KeyCount"] == 1
    s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "a/b c"}]})
    assert running.facts()["objects"] == {}


@pytest.mark.parametrize("verify", [False, True])
def test_a_whole_job_of_ours_runs_on_it(running: Server, verify: bool) -> None:
    """Our writer is measured, and the server has all its bytes: 12 MiB in two parts."""
    run = measure(running, "magic-committer", 12 * MiB, verify=verify)
    assert run.requests["UploadPart"] == 2
    assert run.requests["CompleteMultipartUpload"] == 1
    assert (run.payload, run.checksum) == ("SHA-256", Options().checksum_algorithm)
    assert min(run.seconds, run.cpu_seconds, run.start_bytes) > 0


def test_a_writer_that_fails_is_named(running: Server) -> None:
    """A run that fails is an error that says whose and why, never a figure."""
    with pytest.raises(Failed, match=r"nobody failed:[\s\S]*KeyError: 'nobody'"):
        measure(running, "nobody", MiB)


class Sent:
    """A socket that has received ``data``, in small pieces."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def recv_into(self, buffer: memoryview, count: int = 0, flags: int = 0) -> int:
        got = self._data[: min(7, count or len(buffer))]
        buffer[: len(got)] = got
        self._data = self._data[len(got) :]
        return len(got)


FRAMED = b"5;chunk-signature=aa\r\nhello\r\n6\r\n world\r\n0\r\nx-amz-checksum-crc32:AAA=\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-length": "11"}, b"hello world"),
        ({"transfer-encoding": "chunked"}, FRAMED),
        ({"content-encoding": "aws-chunked", "content-length": str(len(FRAMED))}, FRAMED),
        (
            {"content-encoding": "aws-chunked", "transfer-encoding": "chunked"},
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(FRAMED), FRAMED),
        ),
    ],
)
def test_a_body_is_read_to_its_end_without_its_framing(
    headers: dict[str, str], body: bytes
) -> None:
    """Plain, in HTTP's chunks, in AWS's, in both: the bytes are the same, and the next request on
    the connection begins right behind."""
    wire = Wire(Sent(body + b"NEXT\r\n"))  # type: ignore[arg-type]
    read = read_body(wire, Head("PUT", "/", {}, headers), discard=False)
    assert b"".join(bytes(piece) for piece in read) == b"hello world"
    assert wire.line() == b"NEXT"


def test_pieces_are_new_bytes_of_the_size_asked_for() -> None:
    """No piece is like another, and together they have the size."""
    made = list(pieces(3 * MiB + 5))
    assert [len(piece) for piece in made] == [MiB, MiB, MiB, 5]
    assert len({zlib.crc32(piece) for piece in made}) == 4


def run_of(writer: str, seconds: float) -> Run:
    return Run(
        writer=writer,
        size=10**9,
        seconds=seconds,
        cpu_seconds=1.5,
        start_bytes=50 * MiB,
        peak_bytes=85 * MiB,
        requests={"UploadPart": 120, "CreateMultipartUpload": 1},
        part_bytes=8 * MiB,
        payload="SHA-256",
        checksum="CRC32",
    )


def test_the_table_has_medians_spans_and_ratios() -> None:
    """One row a writer: the median, the span, the ratio to the peer, memory above the start."""
    runs = [run_of("a", 1.0), run_of("peer", 2.0), run_of("a", 2.0), run_of("a", 1.25)]
    text = report.table(runs, "peer")
    heading, _, ours, peer = [[cell.strip() for cell in row.split("|")] for row in text.split("\n")]
    assert heading[4] == "× peer"
    assert ours[1:8] == ["a", "800", "500–1000", "1.60", "1.50", "35.0", "85"]
    assert ours[8:-1] == ["121", "8", "SHA-256", "CRC32"]
    assert peer[1:5] == ["peer", "500", "500–500", "1.00"]
    assert report.requests(runs).splitlines()[0] == "a: 1 CreateMultipartUpload, 120 UploadPart"


def test_the_profiler_names_the_line_that_is_busy() -> None:
    """A thread that computes is seen where it computes."""
    sampler = Sampler()
    with sampler:
        while "test_benchmarks.py" not in sampler.report():
            sum(range(1000))
    assert "test_the_profiler_names_the_line_that_is_busy" in sampler.report()


def test_sparks_ratios_are_taken_within_rounds() -> None:
    """The ratio to the floor is the median of the rounds' own ratios: a round in which everything
    was slow counts like the others."""
    seconds = {spark.FLOOR: [1.0, 10.0, 2.0], spark.OURS: [1.5, 11.0, 2.2]}
    runs = [
        spark.Run(case, seconds[case][number], 2 * seconds[case][number])
        for number in range(3)
        for case in seconds
    ]
    floor, ours = spark.table(runs).splitlines()[2:]
    assert floor == "| mapInArrow | 2.00 | 1.00–10.00 | 1.000 | 4.00 | 1.000 |"
    assert ours == "| write_dataframe | 2.20 | 1.50–11.00 | 1.100 | 4.40 | 1.100 |"

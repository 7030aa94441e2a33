"""Plain guesses work, and plain mistakes get plain words, at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

import pytest

import magic_committer as mc
from magic_committer.errors import BucketNotFound, Unanswered
from magic_committer.options import Mode
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, committed_task, job_of, raises, raising, visible
from tests.servers import moto_options, moto_server, outside
from tools.moto_server import CREDENTIALS

REFUSED = Unanswered("could not reach http://h: connection refused", sent=False, attempts=8)
SILENT = Unanswered("no answer", attempts=8)


@pytest.mark.parametrize("mode", ["append", "fail", "replace_partitions"])
def test_a_missing_bucket_is_told_at_once(s3: MemoryStore, mode: Mode) -> None:
    """After one request, which says that nothing was started; and it is never an absent job."""
    mc.start(DEST, job_id="nightly")
    absent = BucketNotFound("there is no bucket 'bucket'", code="NoSuchBucket", status=404)
    s3.before = raising("*", absent)
    s3.requests.clear()
    with pytest.raises(BucketNotFound, match=r"^job '.{32}' was not started: there is no bucket"):
        mc.start(DEST, mode=mode)
    assert s3.requests.total() == 1
    for ask in (mc.attach, mc.recover, lambda dest, _: mc.inspect(dest)):
        raises(BucketNotFound, ask, DEST, "nightly")


def test_a_first_request_that_was_never_sent_starts_nothing(s3: MemoryStore) -> None:
    """Connection refused: the store's own error, after one request, and not `OutcomeUnknown`."""
    s3.before = raising("*", REFUSED)
    caught = raises(Unanswered, mc.start, DEST, match=r"was not started: could not reach http://h")
    assert not caught.sent
    assert dict(s3.requests) == {"put": 1}


def test_a_first_request_that_was_sent_is_looked_after(s3: MemoryStore) -> None:
    """It may land: the record is read back; a later try that was never sent changes nothing."""
    silent, refused = raising("*", SILENT), raising("*", REFUSED)
    s3.before = lambda r: (refused if s3.requests["put"] > 1 or r.verb == "get" else silent)(r)
    raises(mc.OutcomeUnknown, mc.start, DEST)
    assert s3.requests["get"] >= 1


BEGIN = """
import asyncio, csv, gzip, json, os, sys, zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
import numpy as np, pandas as pd, polars as pl, pyarrow as pa, zstandard
import pyarrow.csv, pyarrow.dataset as ds, pyarrow.parquet as pq
import magic_committer as mc
df = pd.DataFrame({"n": [1, 2], "v": [3, 4]})
w = mc.write(u)
"""

GUESSES = r"""
with w as job, job.open("a") as f: df.to_parquet(f)  #> a
with w as job, job.open("a", "w") as f: df.to_csv(f)  #> a
with w as job, job.open("a") as f: df.to_csv(f, compression="gzip")  #> a
with w as job: df.to_parquet("magic" + u[2:] + "/a")  #> a
with w as job: df.to_parquet("/", partition_cols=["n"], filesystem=job.filesystem())
#> n=1/* n=2/*
with w as job, job.open("a") as f: pl.DataFrame(df).write_parquet(f)  #> a
with w as job, job.open("a") as f: pl.LazyFrame(df).sink_parquet(f)  #> a
with w as job, job.open("a") as f: pq.write_table(pa.table(df), f)  #> a
with w as job, job.open("a") as f: pyarrow.csv.write_csv(pa.table(df), f)  #> a
with w as job: ds.write_dataset(pa.table(df), "/", format="csv", filesystem=job.filesystem())
#> part-0.csv
with w as job, job.open("a", "w") as f: print(1, file=f)  #> a
with w as job, job.open("a", "w") as f: f.writelines(["1"])  #> a
with w as job, job.open("a", "w") as f: csv.writer(f).writerow([1])  #> a
with w as job, job.open("a") as f, gzip.open(f, "wt") as g: g.write("1")  #> a
with w as job, job.open("a") as f, zstandard.open(f, "wt") as g: g.write("1")  #> a
with w as job, job.open("a", "w") as f: json.dump({}, f)  #> a
with w as job, job.open("a") as f: np.save(f, np.zeros(3))  #> a
with w as job, job.open("a") as f: np.savez(f, np.zeros(3))  #> a
with w as job, job.open("a") as f, zipfile.ZipFile(f, "w") as z: z.writestr("b", "1")  #> a
with w as job, job.open("a", "xb") as f: f.write(b"1")  #> a
with w as job, ThreadPoolExecutor(2) as pool: list(pool.map(lambda n: job.open(n).close(), "ab"))
#> a b
job = mc.start(u)
with ProcessPoolExecutor(1, get_context("spawn")) as pool: job.commit(pool.map(work, [job], "a"))
#> a
job = mc.start(u)
with mc.Job.from_dict(json.loads(json.dumps(job.to_dict()))).task(1) as t: t.open("a").close()
job.commit([mc.TaskCommit.from_dict(json.loads(json.dumps(t.result.to_dict())))])  #> a
with mc.open(u + "/a.gz", "w") as f: f.write("1")
assert gzip.decompress(body("a.gz")) == b"1"  #> a.gz
with w as job: job.put("page")  #! Use put_file\(path, name\)
with w as job: job.upload("page")  #! Use put_file\(path, name\)
with w as job: job.path("a")  #! Use 'magic://bucket/dest/name'.*filesystem=
with w as job: job.save("a")  #! Use open\(name, 'w'\), write_text
with w as job: job.commit()  #! Use the end of the `with` block
with w as job: job.nonsense()  #! has no attribute 'nonsense'$
with w as job: job / "a"  #! unsupported operand
with w as job: job.open("a.gz", "w", compression="gzip")  #! unexpected keyword.*'compression'
with mc.write(u, endpoint_url=url, region="us-east-1") as job: job.write_text("a", "1")  #> a
mc.write(u, s3=s3)  #! write s3=magic_committer.S3Options
async def go():
    async with w: pass
asyncio.run(go())  #! not by `async with`. Run the block in a thread, as docs/recipes/asyncio.md
with w as job, job.open("a") as f: f.fileno()  #! Use `with job.local_file\(name\)
json.dumps(mc.start(u))  #! not JSON serializable
with w as job: job.open("a").close()
assert job.report.files == 1  #> a
with w as job: job.put_file("page.html"); job.put_file("page.html", "a.csv.gz")
assert head("page.html")["ContentType"] == "text/html"
assert head("a.csv.gz")["ContentType"] == "binary/octet-stream"  #> a.csv.gz page.html
with w as job: job.write_text("a", "abc")
with mc.write(u) as job: d = job.filesystem(read_through=True); job.write_text("b", "1")
assert d.read_block("a", 1, 1) == b"b" and d.read_block("a", 1, None) == b"bc"  #> a b
with mc.open(Path("a b%41.csv").absolute().as_uri(), "w") as f: f.write("1")
assert Path("a b%41.csv").read_text() == "1"  #>
"""
"""The guesses of a review, but Spark's and Pillow's: what works ends in ``#>`` and the files that
are there, what fails in ``#!`` and what its error says."""

MISTAKES = r"""
with mc.write("s3://no-such-bucket-xyz/t"): pass  #! `aws s3 mb s3://no-such-bucket-xyz` makes one
with mc.write("bucket/t"): pass  #! 'bucket/t' is not an S3 URL: no scheme. Write 's3://bucket/path'
mc.open("out.csv", "w")  #! 'out.csv' is not .*, or pathlib.Path\('out.csv'\).absolute\(\).as_uri
mc.open("/tmp/a%20", "w")  #! '/tmp/a%20' is not an S3 URL.* Write 'file:///tmp/a%2520',
mc.write("/")  #! '/' is not an S3 URL: no scheme. Write 's3://bucket/path'$
with mc.write("https://bucket.s3.amazonaws.com/t"): pass  #! Write 's3://bucket/path'
with mc.write(u, region="eu-west-7") as job: job.write_text("a", "1")  #> a
del os.environ["AWS_ACCESS_KEY_ID"]
with mc.write(u): pass  #! Unable to locate credentials|Partial credentials
del os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
with mc.write(u): pass  #! Give credentials as for every AWS tool
with mc.write(u, profile="nope"): pass  #! profile \(nope\) could not be found
with mc.write(u, endpoint_url=url.replace("http", "https")): pass  #! Check the endpoint's scheme
with mc.write(u, endpoint_url=url[7:]): pass  #! no http:// or https:// URL of a host
with mc.write(u, endpoint_url="http://127.0.0.1:1"): pass  #! connection refused.*Nothing was sent
with mc.write(u, endpoint_url="http://no.invalid"): pass  #! not known.*Nothing was sent
with w as job: f = job.open("a", "w"); f.write("1")  #! ^not closed: a .*with job.open\(
with w as job: job.open("a", "w").write("1"); job.write_text("b", "1")  #! ^not closed: a
with w as job: job.write_text("a", "1"); job.write_text("a", "1")  #! a file 'a' already
with w as job: job.write_text("/a", "1")  #! '/a' is not relative
with w as job: job.write_text("../a", "1")  #! has the element '..'
with w as job: f = job.open("a"); f.close(); f.write(b"1")  #! closed file s3://bucket/.*/a
with w as job, job.open("a") as f: f.read()  #! with job.local_file\(name\)
with w as job: job.local_file("a" * 300)  #! has 255 bytes at most: shorten it, or use task.open
with w as job: job.open("a", "r")  #! mode 'r': a file of a job is written once, by 'wb' or 'w'
with w as job: job.open("a", "r+b")  #! mode 'r\+b': a file of a job is written once
with w as job, job.open("a") as f: f.write(b"1"); f.seek(0)  #! with job.local_file\(name\)
job = mc.start(u)
with job.task(1) as t: t.write_text("a", "1")
assert job.commit([t.result]) == job.commit([t.result])  #> a
job = mc.start(u)
with job.task(1) as t: t.write_text("a", "1")
job.commit([t.result]); job.abort()  #! was committed. Its data is, or will be, visible > a
with w: pass  #>
with w as job, mc.write(u) as inner: job.write_text("a", "1"); inner.write_text("a", "2")  #> a
with w as job, job.open("a", "w") as f: f.write("1"); raise ValueError("mine")  #! ^mine$
with w as job: job.write_text("a", "1"); 1 / 0  #! ^division by zero$
with w as job: job.write_text("a", "1"); sys.exit(0)  #! is aborted: nothing of it
def go():
    with w as job: job.write_text("a", "1"); return job
assert go().report.files == 1  #> a
with w as job: job.write_text("a", "1")
job.open("b", "w")  #! accepts no more files.*another `write` > a
w.open("a", "w")  #! Use it as `with write\(...\) as job:`
with w as job: job.write_text("a", "1"); job.report  #! Read it after the `with` block
with w as job: job.write_text("a", "1")
with mc.write(u, mode="fail"): pass  #! Use mode 'append' or 'replace' > a
with w as job: job.write_text("a", "1")
with mc.write(u) as job: job.write_text("a", "2")
assert body("a") == b"2"  #> a
with w as job: job.write_text("a b", "1"); job.write_text("ü/ß", "1")  #> a?b ü/ß
with w as job: job.write_text("a//b", "1")  #! write one slash
with w as job: job.write_text("_SUCCESS", "1")  #! choose another name
with w as job: job.write_text("a/./b", "1")  #! write the path out
with w as job: job.write_text("", "1")  #! a file needs a name
job = mc.start(u); job.task(1).write_text("a", "1")
try: job.commit()
finally: job.abort()  #! Commit the tasks first: `with job.task\(...\) as task:`
with mc.start(u) as job, job.task(1) as t: t.write_text("a", "1")
assert job.outcome == "aborted"  #>
job = mc.start(u)
with job.task(0) as t: t.write_text("a", "1")
job.commit(expect=[0])  #> a
with mc.start(u) as job: job.open("a")  #! Use open\(...\) of a task: `with job.task\(1\)
with mc.start(u) as job: job.put("a")  #! Use put_file\(path, name\) of a task: `with job.task\(
mc.write(u, path_style=True)  #! Write s3=magic_committer.S3Options\(path_style=…\)
mc.write(u, committer=1)  #! committer is a name, not int: 1. Pass committer='magic'
with mc.write(u, mark_success="yes"): pass  #! mark_success is True or False, not 'yes'
with w: pass
with w: pass  #! a job is used once. Call write\(...\) again
with mc.start(u) as job, job.task(1) as t: t.result  #! is not committed. Leave `with task:`
with mc.start(u) as job, job.task(1) as t: t.directory()  #! with committer='directory'
job = mc.start(u, job_id="j", track="memory")
mc.open_magic(u + "/__magic_job-j/job-j/00/tasks/a_0/__base/x")  #! Start the job with track='s3'
with w as job: job.open("a", encoding="utf-8")  #! are for text: open it with mode 'w'
with w as job: job.put_file(7)  #! a path of this machine is text or a Path, not int
with w as job: job.put_file("none.html")  #! none.html
f = mc.open(u + "/a", "wb"); f.write(b"1"); f.abort(); f.abort(); assert f.closed  #>
mc.start(u, checkpoint="\ud800")  #! checkpoint is the text that names a query's checkpoint, not
mc.start(u, progress=5)  #! progress is a function, not int: 5. Pass progress=print
mc.run(u, work, [1], executor=lambda: 5)  #! executor is an Executor or a function that
with w as job: job.filesystem(keep_bytes_max="1")  #! is a number of bytes, not '1'
with w as job: job.filesystem(keep_bytes_max=-1)  #! there are 0 bytes or more
with w as job: job.filesystem().open(b"a")  #! a path is text, not bytes
with w as job: d = job.filesystem(); d.mkdir("d"); d.mkdir("d")  #! File exists
with w as job: d = job.filesystem(); d.mkdir("d"); d.open("d", "wb")  #! Is a directory
with w as job: d = job.filesystem(); d.mkdir("d"); d.open("d", "rb")  #! Is a directory
with w as job: d = job.filesystem(); d.pipe("a", b"1"); d.rmdir("a")  #! Not a directory
with w as job: d = job.filesystem(); d.cp_file("a", "b")  #! a
"""
"""The mistakes of the same review. ``> a``: what is there after the error, instead of nothing."""

ROWS = re.findall(r"((?:.|\n)+?)\s+#([>!]) ?(.*)\n", GUESSES + MISTAKES)


def work(job: mc.Job, name: str) -> mc.TaskCommit:
    with job.task(name) as task:
        task.open(name).close()
    return task.result


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server("bucket") as url:
        yield url


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("program", "sign", "told"), ROWS, ids=[row[0].strip() for row in ROWS])
def test_what_strangers_type_works_or_is_told(
    moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, sign: str, told: str
) -> None:
    """On moto's server: after an error nothing of a block is there, and no upload is open."""
    pytest.importorskip("polars")  # no Python of `make pythons` has it
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": moto}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    Path("page.html").write_text("<p>")
    prefix = f"{uuid4().hex}/"
    client = outside(moto_options(moto))
    names = {
        "u": f"s3://bucket/{prefix[:-1]}", "url": moto, "s3": client, "work": work,
        "head": lambda key: client.head_object(Bucket="bucket", Key=prefix + key),
        "body": lambda key: client.get_object(Bucket="bucket", Key=prefix + key)["Body"].read(),
    }  # fmt: skip
    left = told
    if sign == "!":
        told, _, left = told.partition(" > ")
        raises(BaseException, exec, BEGIN + program, names, match=f"(?s){told}")
    else:
        exec(BEGIN + program, names)
    seen = client.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
    keys = [key for one in seen if (key := one["Key"].removeprefix(prefix))[:2] not in ("_S", "__")]
    assert len(keys) == len(left.split())
    assert all(map(fnmatch, keys, left.split()))
    assert "Uploads" not in client.list_multipart_uploads(Bucket="bucket", Prefix=prefix)


# A TypeError shows what came, says what to pass, and sends and loses nothing ----------------------


MAGIC = "s3://bucket/t/__magic_job-1/job-1/00/tasks/a_0/__base/x.csv"
start: Any = mc.start
attach: Any = mc.attach
open_magic: Any = mc.open_magic
ENTRIES: dict[str, Callable[..., Any]] = {
    "start": mc.start,
    "write": mc.write,
    "attach": lambda dest, **more: mc.attach(dest, "1", **more),
    "cleanup": mc.cleanup,
    "inspect": mc.inspect,
    "recover": lambda dest, **more: mc.recover(dest, "1", **more),
}
TAKE_OPTIONS = ("start", "write", "attach", "cleanup")


class CloudPath:
    """As of cloudpathlib: its text is right, its file is somewhere else."""

    def __fspath__(self) -> str:
        return "/tmp/cache/x"

    def __str__(self) -> str:
        return DEST


WRONG: list[tuple[Any, dict[str, Any], tuple[str, ...]]] = [
    *((path, {}, (f"Pass '{DEST}'", type(path).__name__))
      for path in (Path(DEST), PurePosixPath(DEST), CloudPath())),
    *((dest, {}, (f"not {type(dest).__name__}",)) for dest in (None, 5, b"s3://b/t", ["s3://b/t"])),
    (Path("s3://key:hunter2@bucket/t"), {}, ("Path",)),
    (DEST, {"s3": {"region": "eu", "secret_key": "hunter2"}},
     (r"S3Options\(region=…, secret_key=…\)",)),
    (DEST, {"s3": {}}, ("an empty dict",)),
    (DEST, {"regio": "a"}, ("no argument 'regio'",)),
]  # fmt: skip
"""Destination, further arguments, and what each call says to them."""
WRONG_OPTIONS: list[tuple[Any, dict[str, Any], tuple[str, ...]]] = [
    (DEST, {"options": {"block_bytes": 1}}, (r"options=magic_committer.Options\(block_bytes=…\)",)),
    (DEST, {"options": mc.S3Options()}, ("belongs into s3=",)),
    (DEST, {"s3": mc.Options()}, ("belongs into options=",)),
]


@pytest.mark.parametrize(
    ("entry", "dest", "more", "told"),
    [
        *((entry, *wrong) for entry in ENTRIES for wrong in WRONG),
        *((entry, *wrong) for entry in TAKE_OPTIONS for wrong in WRONG_OPTIONS),
    ],
)
def test_what_is_no_url_and_no_settings_is_told(
    s3: MemoryStore, entry: str, dest: Any, more: dict[str, Any], told: tuple[str, ...]
) -> None:
    """The hint has the call as it was meant; values, and what is before an "@", are not shown."""
    raised = raises(TypeError, ENTRIES[entry], dest, **more)
    for words in told:
        assert re.search(words, str(raised))
    assert "hunter2" not in str(raised)
    assert not s3.requests


UNCLEAR: list[tuple[Any, str]] = [
    ("10", r"expect=\['10'\].*expect=10"),
    ("seven", r"expect=\['seven'\]"),
    (b"1", r"expect=\['1'\]"),
    (True, "expect=True"),
    (1.5, "float: 1.5"),
    ([None], "NoneType: None"),
    ([True], "bool: True"),
    (-1, "expect=-1"),
]


@pytest.mark.parametrize(("expect", "told"), UNCLEAR)
def test_an_unclear_expectation_is_refused(s3: MemoryStore, expect: Any, told: str) -> None:
    """I10: it is an error with the ways to say it; the commit can be made again."""
    job = job_of({"a.csv": b"1"})
    s3.requests.clear()
    raises((TypeError, mc.OptionError), job.commit, expect=expect, match=told)
    assert not s3.requests
    with pytest.raises(mc.MagicError, match="has no report yet"):
        job.report  # noqa: B018
    assert job.commit(expect=1).files == 1


@pytest.mark.parametrize("expect", [[1], (1,), {"1"}, range(1, 2), ["1", 1], 1])
def test_an_expectation_that_is_clear_is_taken(s3: MemoryStore, expect: Any) -> None:
    """``expect=[1]`` names the task that ``job.task(1)`` made."""
    assert job_of({"a.csv": b"1"}).commit(expect=expect).files == 1


def test_what_is_no_list_of_results_is_told(s3: MemoryStore) -> None:
    """The message has its type; results are taken as they travelled: dicts, by a generator."""
    job = mc.start(DEST)
    results = [committed_task(job, str(n), {f"{n}.csv": b"1"}) for n in range(2)]
    cases: list[tuple[Any, str]] = [
        (results[0], r"not one TaskCommit.*\[result\]"),
        *((wrong, f"not {type(wrong).__name__}") for wrong in ("1", b"1", {"task": "1"}, 1)),
        ([results[0], job.task("2")], r"TaskCommits, not .*task\.result"),
        ([results[0], None], r"TaskCommits, not .*task\.result"),
    ]
    for wrong, told in cases:
        raises(TypeError, job.commit, wrong, match=told)
    travelled = [result.to_dict() for result in results]
    with pytest.raises(mc.FormatError, match="job_uuid"):
        job.commit([{key: value for key, value in travelled[0].items() if key != "job_uuid"}])
    assert job.commit(one for one in travelled).files == 2


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ({"committer": "directory"}, "committer='directory' has no attempts that several"),
        ({"track": "memory"}, "it needs track='s3'"),
    ],
)
def test_an_attempt_that_cannot_be_shared_says_why(
    s3: MemoryStore, terms: dict[str, Any], told: str
) -> None:
    """By what the caller has chosen: the committer, or the track."""
    raises(mc.OptionError, start(DEST, **terms).task, "1", attempt="a", match=told)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        *((lambda task=task: start(DEST).task(task), type(task).__name__)
          for task in (None, True, 1.0, b"1")),
        (lambda: start(DEST, job_id=1), "job_id='1'"),
        (lambda: attach(DEST, 1), "job_id='1'"),
        (lambda: start(DEST).task("1", attempt=1), "attempt='1'"),
        (lambda: start(DEST, mode=None), "mode is text"),
        (lambda: open_magic(MAGIC, attributes={"content_type": "x"}),
         r"Attributes\(content_type=…\)"),
    ],
)  # fmt: skip
def test_what_is_no_id_is_told(s3: MemoryStore, call: Callable[[], object], told: str) -> None:
    """``job.task(None)`` is no task called "None"; of a number the hint has the text."""
    raises(TypeError, call, match=told)


def test_bytes_into_text_and_text_into_bytes_lose_nothing(s3: MemoryStore) -> None:
    """The message names file and mode, not the content; what is written before and after stays."""
    with mc.write(DEST) as job:
        make: Any = job.open
        for arguments, told in (
            ((b"a.txt",), "text or a Path, not bytes"),
            (("a.txt", None), "Pass 'wb' or 'w'"),
        ):
            raises(TypeError, make, *arguments, match=told)
        with pytest.raises(TypeError, match=r"Attributes\(content_type=…\)"):
            make("a.txt", attributes={"content_type": "x"})
        for mode, right, wrong, told, lines in (
            ("w", "a", (b"secret", bytearray(b"secret"), 5, None),
             r"t/a\.txt is a file of text.*'wb'", "accepts no bytes"),
            ("wb", b"a", ("secret", 5, None, ["a"]),
             r"t/b\.bin is a file of bytes", r"accepts no str.*'w'"),
        ):  # fmt: skip
            with make("a.txt" if mode == "w" else "b.bin", mode) as file:
                file.write(right)
                for value in wrong:
                    raised = raises(TypeError, file.write, value, match=told)
                    assert "secret" not in str(raised)
                raises(TypeError, file.writelines, [wrong[0]], match=lines)
                file.write(right)
    assert visible(s3) == {"t/a.txt": b"aa", "t/b.bin": b"aa"}


WORDS = {
    **{word: word for word in ("append", "fail_partitions", "replace", "replace_partitions")},
    **dict.fromkeys(("fail", "error", "errorifexists", "errorIfExists"), "fail"),
    "overwrite": "replace",
    "overwrite_partitions": "replace_partitions",
}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("case", [str, str.upper, str.title])
def test_both_vocabularies_are_understood_in_any_case(
    s3: MemoryStore, word: str, case: Callable[[str], str]
) -> None:
    """The record holds the library's word, whichever was said."""
    assert start(DEST, mode=case(word)).commit(expect=0).mode == WORDS[word]


NO_MODES = {
    "overwrit": "Did you mean 'overwrite'",
    "Replac": "Did you mean 'replace'",
    "apend": "Did you mean 'append'",
    "IGNORE": r"mode='error'.*DestinationExists",
}


@pytest.mark.parametrize("begin", [mc.start, mc.write])
@pytest.mark.parametrize("word", NO_MODES)
def test_a_mode_that_is_none_is_told_the_nearest(s3: MemoryStore, begin: Any, word: str) -> None:
    """A misspelt word costs no request; "ignore" is Spark's: no job skips what comes next."""
    raises(mc.OptionError, begin, DEST, mode=word, match=NO_MODES[word])
    for term in ({"accept": "result"}, {"track": "S3"}):
        raises(mc.OptionError, start, DEST, **term)
    assert not s3.requests


@pytest.mark.parametrize(
    ("word", "replace"),
    [("fail", "replace"), ("error", "overwrite"), ("ErrorIfExists", "overwrite")],
)
@pytest.mark.parametrize("late", [False, True])
def test_hints_are_in_the_callers_words(
    s3: MemoryStore, word: Any, replace: str, late: bool
) -> None:
    """Data is in the way, at the start or at a copy's commit: the words are never the others'."""
    job = mc.start(DEST, mode=word) if late else None
    s3.put_object("t/a.csv", b"theirs")
    with pytest.raises(mc.DestinationExists) as raised:
        mc.Job.from_dict(job.to_dict()).commit(expect=0) if job else mc.start(DEST, mode=word)
    assert f"mode {word!r}" in str(raised.value)
    assert f"'append' or {replace!r}" in raised.value.hint


def test_where_the_store_is_may_be_said_without_s3options(s3: MemoryStore) -> None:
    """``endpoint_url``, ``region`` and ``profile`` in place of ``s3``; both cost no request."""
    job = mc.start(DEST, job_id="1", endpoint_url="http://h:1", region="a", profile="p")
    assert job._s3 == mc.S3Options(endpoint_url="http://h:1", region="a", profile="p")
    assert mc.attach(DEST, "1", region="b")._s3.region == "b"
    assert mc.inspect(DEST, region="a")[0].id == "1"
    s3.requests.clear()
    for call in ENTRIES.values():
        raises(mc.OptionError, call, DEST, region="a", s3=mc.S3Options(), match="s3= and region=")
    assert not s3.requests


def test_one_call_writes_a_file(s3: MemoryStore) -> None:
    """``write_bytes`` and ``write_text``, with a `Path` for a name, in a block and in a task."""
    with mc.write(DEST) as job:
        assert job.write_bytes(Path("dt=1/a.bin"), b"12") == 2
        with job.open(Path("dt=1/b.csv"), "w") as file:
            file.write("1")
        job.discard(Path("dt=1/b.csv"))
    started = mc.start(DEST)
    with started.task(1) as task:
        assert task.write_text("c.txt", "ä\n", encoding="utf-16", newline="\r\n") == 2
    started.commit([task.result])
    assert visible(s3).keys() == {"t/dt=1/a.bin", "t/c.txt"}
    assert visible(s3)["t/c.txt"].decode("utf-16") == "ä\r\n"


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-32", "UTF16", "utf-16-le", "utf-8-sig", "utf-8"]
)
def test_text_has_the_mark_of_its_encoding(s3: MemoryStore, encoding: str, tmp_path: Path) -> None:
    """Once, as Python's own ``open`` writes it; an empty file has none."""
    with mc.write(DEST) as job:
        for name, texts in (("a", ["1", "2\n"]), ("empty", [])):
            with (
                job.open(name, "w", encoding=encoding) as file,
                open(tmp_path / name, "w", encoding=encoding) as plain,
            ):
                for text in texts:
                    assert file.write(text) == plain.write(text)
    for name in ("a", "empty"):
        assert visible(s3)[f"t/{name}"] == (tmp_path / name).read_bytes()

"""Plain guesses work, and plain mistakes get plain words, at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from uuid import uuid4

import pytest

import magic_committer as mc
from magic_committer.errors import BucketNotFound, Unanswered
from magic_committer.options import Mode
from magic_committer.stores.memory import MemoryStore
from tests.promises.hands import DEST, raising
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
        with pytest.raises(BucketNotFound):
            ask(DEST, "nightly")


def test_a_first_request_that_was_never_sent_starts_nothing(s3: MemoryStore) -> None:
    """Connection refused: the store's own error, after one request, and not `OutcomeUnknown`."""
    s3.before = raising("*", REFUSED)
    with pytest.raises(Unanswered, match=r"was not started: could not reach http://h") as caught:
        mc.start(DEST)
    assert not caught.value.sent
    assert dict(s3.requests) == {"put": 1}


def test_a_first_request_that_was_sent_is_looked_after(s3: MemoryStore) -> None:
    """It may land: the record is read back; a later try that was never sent changes nothing."""
    silent, refused = raising("*", SILENT), raising("*", REFUSED)
    s3.before = lambda r: (refused if s3.requests["put"] > 1 or r.verb == "get" else silent)(r)
    with pytest.raises(mc.OutcomeUnknown):
        mc.start(DEST)
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
with w as job: job.write_bytes("a", b"1"); job.write_text("b", "1")  #> a b
with w as job: job.open("a.gz", "w", compression="gzip")  #! unexpected keyword.*'compression'
with mc.write(u, endpoint_url=url, region="us-east-1") as job: job.write_text("a", "1")  #> a
mc.write(u, s3=s3)  #! write s3=magic_committer.S3Options
async def go():
    async with w: pass
asyncio.run(go())  #! not by `async with`. Run the block in a thread, as docs/recipes/asyncio.md
with w as job, job.open("a") as f: f.fileno()  #! Use `with job.local_file\(name\)
json.dumps(mc.start(u))  #! not JSON serializable
job = mc.start(u)
with job.task(1) as t: t.write_text("a", "1")
job.commit([t.result.to_dict()])  #> a
with w as job: job.open(Path("x/a")).close()  #> x/a
with w as job: job.open("a").close()
assert job.report.files == 1  #> a
with w as job: job.write_text("a", "1", encoding="utf-16", newline="")
assert body("a") == "1".encode("utf-16")  #> a
with w as job: job.put_file("page.html"); job.put_file("page.html", "a.csv.gz")
assert head("page.html")["ContentType"] == "text/html"
assert head("a.csv.gz")["ContentType"] == "binary/octet-stream"  #> a.csv.gz page.html
"""
"""The guesses of a review, but Spark's and Pillow's: what works ends in ``#>`` and the files that
are there, what fails in ``#!`` and what its error says."""

MISTAKES = r"""
with mc.write("s3://no-such-bucket-xyz/t"): pass  #! `aws s3 mb s3://no-such-bucket-xyz` makes one
with mc.write("bucket/t"): pass  #! 'bucket/t' is not an S3 URL: no scheme. Write 's3://bucket/path'
with mc.write("https://bucket.s3.amazonaws.com/t"): pass  #! Write 's3://bucket/path'
with mc.write(u, region="eu-west-7") as job: job.write_text("a", "1")  #> a
del os.environ["AWS_ACCESS_KEY_ID"]
with mc.write(u): pass  #! Unable to locate credentials|Partial credentials
del os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
with mc.write(u): pass  #! Give credentials as for every AWS tool
with mc.write(u, profile="nope"): pass  #! profile \(nope\) could not be found
with mc.write(u, endpoint_url=url.replace("http", "https")): pass  #! Check the endpoint's scheme
with mc.write(u, endpoint_url=url[7:]): pass  #! Invalid endpoint
with mc.write(u, endpoint_url="http://127.0.0.1:1"): pass  #! connection refused.*Nothing was sent
with mc.write(u, endpoint_url="http://no.invalid"): pass  #! not known.*Nothing was sent
with w as job: f = job.open("a", "w"); f.write("1")  #! ^not closed: a .*with job.open\(
with w as job: job.open("a", "w").write("1"); job.write_text("b", "1")  #! ^not closed: a
with w as job: job.write_text("a", "1"); job.write_text("a", "1")  #! a file 'a' already
with w as job: job.write_text("/a", "1")  #! '/a' is not relative
with w as job: job.write_text("../a", "1")  #! has the element '..'
with w as job: f = job.open("a"); f.close(); f.write(b"1")  #! closed file s3://bucket/.*/a
with w as job, job.open("a") as f: f.read()  #! with job.local_file\(name\)
with w as job, job.open("a", "w") as f: f.read()  #! with job.local_file\(name\)
with w as job: job.open("a", "r")  #! mode 'r': a file of a job is written once, by 'wb' or 'w'
with w as job: job.open("a", "a")  #! mode 'a': a file of a job is written once
with w as job: job.open("a", "r+b")  #! mode 'r\+b': a file of a job is written once
with w as job, job.open("a") as f: f.write(b"1"); f.seek(0)  #! with job.local_file\(name\)
with w as job, job.open("a", "w") as f: f.write("1"); f.seek(0)  #! with job.local_file\(name\)
with w as job, job.open("a") as f: f.write("1")  #! Open it with mode 'w' for text
with w as job, job.open("a", "w") as f: f.write(b"1")  #! Open it with mode 'wb' for bytes
job = mc.start(u)
with job.task(1) as t: t.write_text("a", "1")
assert job.commit([t.result]) == job.commit([t.result])  #> a
job = mc.start(u)
with job.task(1) as t: t.write_text("a", "1")
job.commit([t.result]); job.abort()  #! was committed. Its data is, or will be, visible > a
mc.start(u).commit()  #! no task is committed.*Abort the job: magic_committer.abort\('s3://bucket
mc.start(u).commit([])  #! no task is committed.*commit\(results=\[\], expect=0\)
with w: pass  #>
with w as job, mc.write(u) as inner: job.write_text("a", "1"); inner.write_text("a", "2")  #> a
with mc.write(u, mode="replace"), mc.write(u, mode="replace"): pass  #! Try again when it has ended
with w as job, job.open("a", "w") as f: f.write("1"); raise ValueError("mine")  #! ^mine$
with w as job: job.write_text("a", "1"); 1 / 0  #! ^division by zero$
with w as job: job.write_text("a", "1"); sys.exit(0)  #! is aborted: nothing of it
def go():
    with w as job: job.write_text("a", "1"); return job
assert go().report.files == 1  #> a
with w as job: job.write_text("a", "1")
job.open("b", "w")  #! takes no more files.*another `write` > a
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
with w as job: job.write_text("__magic_job-1/x", "1")  #! choose another name
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
mc.write(u, regio="a")  #! no argument 'regio'. Check its spelling
mc.write(u, path_style=True)  #! Write s3=magic_committer.S3Options\(path_style=…\)
mc.write(u, region="a", s3=mc.S3Options())  #! s3= and region= are given both
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
        with pytest.raises(BaseException, match=f"(?s){told}"):
            exec(BEGIN + program, names)
    else:
        exec(BEGIN + program, names)
    seen = client.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])
    keys = [key for one in seen if (key := one["Key"].removeprefix(prefix))[:2] not in ("_S", "__")]
    assert len(keys) == len(left.split())
    assert all(map(fnmatch, keys, left.split()))
    assert "Uploads" not in client.list_multipart_uploads(Bucket="bucket", Prefix=prefix)

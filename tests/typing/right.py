"""Right uses of the public API: clean for mypy --strict and for pyright. Never run."""

from __future__ import annotations

import array
import json
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import timedelta
from typing import assert_type

import magic_committer as mc
from magic_committer import *  # noqa: F403 (a notebook's way)


def stars() -> None:
    """Every public name comes by a star, too."""
    assert_type(Options(), mc.Options)  # noqa: F405
    assert_type(start("s3://b/t"), mc.Job)  # noqa: F405


def files(job: mc.Job, task: mc.Task, writing: mc.Writing) -> None:
    """The mode says what a file takes."""
    assert_type(task.open("a"), mc.TaskFile)
    assert_type(task.open("a", "wb"), mc.TaskFile)
    assert_type(task.open("a", mode="xb", unique=True), mc.TaskFile)
    assert_type(task.open("a", "w"), mc.TextUpload)
    assert_type(task.open("a", "xt", encoding="latin-1", newline=""), mc.TextUpload)
    assert_type(writing.open("a"), mc.TaskFile)
    assert_type(writing.open("a", "w", errors="replace"), mc.TextUpload)
    assert_type(mc.open("s3://b/x.gz", "wb", region="a"), mc.TaskFile)
    assert_type(mc.open("s3://b/x", "w", compression=None, encoding="utf-16"), mc.TextUpload)
    assert_type(mc.open_magic("s3://b/x"), mc.UploadStream)
    assert_type(mc.open_magic("s3://b/x", "wt", encoding="utf-8"), mc.TextUpload)
    with task.open("a.csv", "w", attributes=mc.Attributes(content_type="text/csv")) as text:
        assert_type(text, mc.TextUpload)
        assert_type(text.write("1,2,3\n"), int)
        text.writelines(["a", "b"])
    with task.open("a.bin") as binary:
        assert_type(binary, mc.TaskFile)
        assert_type(binary.write(b"1"), int)
        binary.write(bytearray(b"1"))
        binary.write(memoryview(b"1"))
        binary.write(array.array("d", [1.0]))
        binary.writelines([b"1", bytearray(b"2")])
        assert_type(binary.state, mc.FileState)


def either(task: mc.Task, mode: mc.BinaryMode | mc.TextMode) -> mc.TaskFile | mc.TextUpload:
    """A mode that is only known to be one of them gives one of the two files."""
    return task.open("a", mode)


def one_process() -> None:
    """`write`, as the README shows it."""
    with mc.write("s3://b/t", mode="overwrite", options=mc.Options(parts_in_flight=2)) as job:
        assert_type(job, mc.Writing)
        assert_type(job.open("a", "w"), mc.TextUpload)
    assert_type(job.report, mc.JobReport)


def many_processes() -> None:
    """`start`, tasks, `commit`; a job on its way through JSON."""
    with mc.start("s3://b/t", mode="replace_partitions", job_id="1", exist_ok=True) as job:
        assert_type(job, mc.Job)
        with job.task(7) as task, task.open("a.csv", "w") as file:
            file.write("1")
        assert_type(task.result, mc.TaskCommit)
        assert_type(job.commit([task.result], expect=[7]), mc.JobReport)
        job.commit([task.result.to_dict()])
        job.commit((one for one in [task.result]), expect={"7"})
        job.commit(expect=1)
    again = mc.Job.from_dict(json.loads(json.dumps(job.to_dict())), s3=mc.S3Options(region="eu"))
    assert_type(again, mc.Job)
    assert_type(again.state, mc.State)
    if again.state == "running" or again.state is mc.State.COMMITTING:
        assert_type(again.abort(), mc.JobReport)


def errors() -> str:
    """An error's report is a report."""
    try:
        mc.attach("s3://b/t", "1").commit()
    except mc.JobError as error:
        assert_type(error.report, mc.JobReport | None)
        if error.report is not None and error.report.decider is not None:
            assert_type(error.report.decider, mc.Decider)
            return error.report.decider.host
    return ""


def operators(way: mc.S3Options, mode: mc.Mode | mc.SparkMode, age: mc.Age) -> None:
    """What operators call."""
    for found in mc.inspect("s3://b/t", s3=way):
        assert_type(found, mc.FoundJob)
        assert_type(mc.recover("s3://b/t", found.id, dead_after=timedelta(hours=1)), mc.Recovery)
    assert_type(mc.cleanup("s3://b/t", dead_after=age), mc.CleanupReport)

    def tell(step: mc.Progress) -> None:
        print(step.done, step.total)

    mc.start("s3://b/t", mode=mode, track="memory", accept="results", progress=tell)


def write_day(task: mc.Task, day: str) -> int:
    """What `run` calls."""
    with task.open(f"{day}.csv", "w") as file:
        return file.write(day)


def on_an_executor() -> None:
    """`run`: an executor, a class of one, or a function that makes one."""
    with ThreadPoolExecutor() as threads:
        report = mc.run("s3://b/t", write_day, ["mon"], executor=threads, speculate=3.0)
    assert_type(report, mc.RunReport[int])
    assert_type(report.returned, tuple[int, ...])
    mc.run("s3://b/t", write_day, (day for day in "ab"), executor=ProcessPoolExecutor)
    mc.run("s3://b/t", write_day, {"a"}, executor=lambda: ProcessPoolExecutor(2), mode="error")

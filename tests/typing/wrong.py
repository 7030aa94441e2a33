"""Wrong uses of the public API. Each line that is marked ``# wrong`` must be an error for mypy
--strict and for pyright, and no other line may be. Never run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import magic_committer as mc


def files(task: mc.Task, writing: mc.Writing, mode: str) -> None:
    """Modes and what goes with them."""
    task.open("a", "r")  # wrong
    task.open("a", "a")  # wrong
    task.open("a", mode)  # wrong
    task.open("a", "wb", encoding="utf-8")  # wrong
    task.open("a", no_such_option=1)  # wrong
    task.open("a", attributes={"content_type": "text/csv"})  # wrong
    task.open("a", "w").write(b"1")  # wrong
    task.open("a").write("1")  # wrong
    task.open("a").writelines(["1"])  # wrong
    task.open("a", "w").writelines([b"1"])  # wrong
    writing.open("c", "r", no_such_option=1)  # wrong
    writing.open("c", "w").write(b"1")  # wrong
    writing.open("c", "xb", newline="")  # wrong
    writing.opne("c")  # wrong
    mc.open_magic("s3://b/x", "rb")  # wrong
    mc.open_magic("s3://b/x", "wb", errors="strict")  # wrong


def starting() -> None:
    """Arguments of `start`, `write` and `attach`."""
    mc.start(Path("s3://b/t"))  # wrong
    mc.start("s3://b/t", mode="overwrit")  # wrong
    mc.start("s3://b/t", mode="ignore")  # wrong
    mc.start("s3://b/t", track="S3")  # wrong
    mc.start("s3://b/t", accept="result")  # wrong
    mc.start("s3://b/t", s3={})  # wrong
    mc.start("s3://b/t", options={})  # wrong
    mc.start("s3://b/t", options=mc.S3Options())  # wrong
    mc.start("s3://b/t", job_id=1)  # wrong
    mc.start("s3://b/t", progress=print("x"))  # wrong
    mc.write("s3://b/t", job_id="1")  # wrong
    mc.write("s3://b/t").commit()  # wrong
    mc.attach("s3://b/t")  # wrong
    mc.open("s3://b/t")  # wrong
    mc.open("s3://b/t", "r")  # wrong
    mc.write("s3://b/t", regio="a")  # wrong


def committing(job: mc.Job, task: mc.Task) -> None:
    """Results, expectations, reports."""
    job.commit(task.result)  # wrong
    job.commit([task])  # wrong
    job.commit(expect=1.5)  # wrong
    job.commit(expect=[None])  # wrong
    job.task(None)  # wrong
    job.report = None  # wrong
    job.put  # wrong
    job.sole_task("1", "a")  # wrong
    job.attempt_by_path("a")  # wrong
    job.committed_task(task.result)  # wrong
    job.keep_at_home()  # wrong
    job.state = mc.State.CLOSED  # wrong
    mc.Job.from_dict("{}")  # wrong
    task.result.files = 1  # wrong


def errors(error: mc.JobError) -> int:
    """The report may be missing."""
    error.report.outcome  # wrong
    return error.report  # wrong


def takes_text(task: mc.Task, text: str) -> int:
    """A function for `run`."""
    return len(text)


def on_an_executor() -> None:
    """The function must take the items; the executor is one, or makes one."""
    mc.run("s3://b/t", takes_text, ["a"], executor=4)  # wrong
    mc.run("s3://b/t", takes_text, [1], executor=ThreadPoolExecutor)  # wrong
    mc.run("s3://b/t", takes_text, ["a"])  # wrong
    mc.run("s3://b/t", takes_text, ["a"], executor=ThreadPoolExecutor).returned[0].upper()  # wrong

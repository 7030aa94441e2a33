"""Plain mistakes in Spark's calls are told before anything is started. No session is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD
from pyspark.sql import DataFrame

import magic_committer as mc
from magic_committer.engines.items import AcceptResult, ItemWriter, TryResult
from magic_committer.spark import write_dataframe, write_partitions
from magic_committer.spark.driver import Order, write_job
from magic_committer.testing import memory_store
from tests.promises.hands import DEST


class Frame(DataFrame):
    """A DataFrame without a Spark."""

    def __new__(cls) -> Frame:
        return object.__new__(cls)

    def __init__(self) -> None: ...

    def __repr__(self) -> str:
        return "Frame"


def rdd() -> RDD[int]:
    """An RDD without a Spark."""
    bare: RDD[int] = object.__new__(RDD)
    return bare


def write_rows(task: mc.Task, rows: Any) -> None:
    """What is never called."""


def test_an_rdd_or_a_dataframe_names_the_other_call() -> None:
    """And a generator, whose body would never run, is refused; so is a batch's bare number. What
    only Spark's own writer has names ``via``."""
    with pytest.raises(TypeError, match=r"not an RDD.*write_partitions\(rdd, dest, fn\)"):
        write_dataframe(rdd(), DEST)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"not a DataFrame.*write_dataframe\(df, dest\)"):
        write_partitions(Frame(), DEST, write_rows)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="whose body nobody runs"):
        write_partitions(rdd(), DEST, lambda task, rows: (yield))
    with pytest.raises(TypeError, match=r"StreamBatch\(query, 7\)"):
        write_dataframe(Frame(), DEST, batch=7)  # type: ignore[arg-type]
    with pytest.raises(mc.OptionError, match=r"'avro', via='file:///scratch'\)"):
        write_dataframe(Frame(), DEST, "avro")


@pytest.mark.parametrize("rows", [[1, 2], None, {"a": 1}])
def test_what_is_neither_is_told_how_to_make_one(rows: Any) -> None:
    """Lists and the like: the hint is Spark's call that makes a DataFrame or an RDD of them."""
    with pytest.raises(TypeError, match=r"createDataFrame\(rows\)"):
        write_dataframe(rows, DEST)
    with pytest.raises(TypeError, match=r"parallelize\(rows\)"):
        write_partitions(rows, DEST, write_rows)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"dest": Path(DEST)}, f"Pass '{DEST}'"),
        ({"s3": {"secret_key": "hunter2"}}, r"S3Options\(secret_key=…\)"),
        ({"options": {}}, "an empty dict"),
        ({"mode": None}, "mode is text"),
    ],
)
def test_arguments_of_another_type_are_told_by_both_calls(wrong: dict[str, Any], told: str) -> None:
    """The same words as elsewhere, before Spark is asked anything."""
    arguments = {"dest": DEST, **wrong}
    with pytest.raises(TypeError, match=told):
        write_dataframe(Frame(), **arguments)
    with pytest.raises(TypeError, match=told):
        write_partitions(rdd(), fn=write_rows, **arguments)


def one_task(work: ItemWriter, accept: AcceptResult) -> list[str]:
    """Write one file, here, and accept its task."""
    with work.job.task("0") as task, task.open("new.csv", "w") as file:
        file.write("1")
    accept(0, TryResult(task.result))
    return ["0"]


@pytest.mark.parametrize("mode", ["ignore", "Ignore", "meanwhile"])
def test_ignore_does_nothing_in_any_case(monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    """Also if data comes meanwhile; a mode that is none is told in Spark's words."""
    order = Order(DEST, "ignore" if mode == "meanwhile" else mode, True, None, None, print)
    with memory_store():
        assert write_job(order, one_task, print).outcome == "committed"
        if mode == "meanwhile":
            monkeypatch.setattr(Order, "finds_data", lambda order: False)
        report = write_job(order, one_task, print)
    assert report.skipped
    assert str(report) == "nothing was written to s3://bucket/t/: it holds data"
    with pytest.raises(mc.OptionError, match=r"Did you mean 'ignore'\? There are append, error,"):
        Order(DEST, "ignor", True, None, None, print)  # type: ignore[arg-type]

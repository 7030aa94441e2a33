"""A Spark job may run for days without a sign on the store: its driver gives one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magic_committer import _wiring
from magic_committer._runtime import no_progress
from magic_committer.engines.items import AcceptResult, ItemWriter
from magic_committer.spark.driver import Order, write_job
from magic_committer.testing import memory_store


@pytest.mark.parametrize("fails", [False, True])
def test_a_driver_gives_signs_of_life_while_its_tasks_run(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The sign is given as long as the job runs, and ends with it, well or not."""
    giving: list[Callable[[], bool]] = []

    def every(seconds: float, function: Callable[[], bool]) -> Callable[[], None]:
        giving.append(function)
        return giving.clear  # repeatable

    monkeypatch.setattr(_wiring.pool, "every", every)

    def no_tasks(work: ItemWriter, accept: AcceptResult) -> int:
        assert [give() for give in giving] == [True]
        assert f"t/__magic_job-{work.job.id}/_alive.json" in s3.keys()
        if fails:
            raise ZeroDivisionError
        return 0

    order = Order("s3://bucket/t", "append", True, None, None, no_progress)
    with memory_store() as s3:
        if fails:
            with pytest.raises(ZeroDivisionError):
                write_job(order, no_tasks, print)
        else:
            assert write_job(order, no_tasks, print).outcome == "committed"
        assert giving == []
        assert s3.keys("t/__magic") == ()

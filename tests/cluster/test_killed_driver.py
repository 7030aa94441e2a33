"""On a real cluster an executor and a worker are killed with -9 while tasks write, and the driver
in the middle of its commit; the command line finishes its job, from a machine without Spark. `make
nightly` has 1,000 partitions with five files each."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import magic_committer as mc
from tests.chaos.proxy import Moment, Striker, through
from tests.cluster.doomed import FILES
from tests.cluster.machines import WORKER, commands, executors, kill, worker
from tests.nightly import most
from tests.spark.lake import Lake

ROOT = Path(__file__).resolve().parents[2]
COMMITTING = 2
"""The phase: the store has accepted so many versions of the record."""
DRIVER_SECONDS_MAX = most(1200.0, 300.0)
COMMAND_SECONDS_MAX = 300.0
THIRD_HOST = "127.0.0.3"
SHOWN_MAX = 1_000
"""Uploads in a page of a listing."""


def test_a_driver_killed_during_its_commit_is_recovered(
    master: str, lake: Lake, chance: random.Random, tmp_path: Path
) -> None:
    """Its tasks have lost an executor and a worker before; some files are visible when it dies.
    ``magic-committer job recover`` makes the rest visible, each row once, and leaves nothing
    else."""
    moment = Moment(COMMITTING, chance.randint(FILES // 4, FILES // 2), chance.random() < 0.5)
    with worker(tmp_path, THIRD_HOST, master), through(Striker(), lake.endpoint) as line:

        def strike() -> None:
            line.release(over=True)
            driver.kill()

        line.arm(moment, strike)
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.doomed", master, lake.dest], cwd=ROOT, text=True,
            env={**os.environ, "AWS_ENDPOINT_URL": line.url},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert driver.stdout is not None
        application = driver.stdout.readline().strip()
        lake.shows_uploads(min(FILES, SHOWN_MAX) // 4)
        mine = executors(application)
        kill(chance.choice([pid for pid, host in mine.items() if host != THIRD_HOST]))
        lake.shows_uploads(min(FILES, SHOWN_MAX) // 2)
        for pid in commands(WORKER, THIRD_HOST):
            kill(pid)
        _, told = driver.communicate(timeout=DRIVER_SECONDS_MAX)
        assert line.struck, told[-3000:]
        line.settle()
    assert driver.returncode == -9
    assert 0 < len(lake.data()) < FILES
    [found] = mc.inspect(lake.dest)
    assert found.state == "committing"
    ran = subprocess.run(
        [sys.executable, "-m", "magic_committer", "job", "recover", lake.dest, found.id, "--yes"],
        cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert sorted(map(int, lake.data().values())) == list(range(FILES))
    assert lake.open_uploads() == []
    record = f"__magic_job-{found.id}/_job.json"  # stays, closed: its driver might be alive
    assert lake.hidden() == ["_SUCCESS", record]
    assert mc.attach(lake.dest, found.id).state == "closed"

"""A driver on a real cluster is killed with -9 in the middle of its commit; the command line
finishes its job, from a machine without Spark."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import magic_committer as mc
from tests.cluster.doomed import FILES
from tests.spark.lake import Lake
from tests.striker import Moment, striker

ROOT = Path(__file__).resolve().parents[2]
COMMITTING = 2
"""The proxy's phase: the store has accepted so many versions of the record."""
DRIVER_SECONDS_MAX = 150.0
COMMAND_SECONDS_MAX = 60.0


def test_a_driver_killed_during_its_commit_is_recovered(
    master: str, lake: Lake, chance: random.Random
) -> None:
    """Some files are visible when it dies; ``magic-committer job recover``
    makes the rest visible, and leaves nothing else."""
    moment = Moment(COMMITTING, chance.randint(FILES // 4, FILES // 2), chance.random() < 0.5)
    with striker(lake.endpoint) as proxy:

        def kill() -> None:
            proxy.end()
            driver.kill()

        proxy.arm(moment, kill)
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.doomed", master, lake.dest],
            cwd=ROOT,
            env={**os.environ, "AWS_ENDPOINT_URL": proxy.url},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        _, told = driver.communicate(timeout=DRIVER_SECONDS_MAX)
        assert proxy.struck, told[-3000:]
        proxy.settle()
    assert driver.returncode == -9
    assert 0 < len(lake.data()) < FILES
    [found] = mc.inspect(lake.dest)
    assert found.state == "committing"
    ran = subprocess.run(
        [sys.executable, "-m", "magic_committer", "job", "recover", lake.dest, found.id, "--yes"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )
    assert ran.returncode == 0, ran.stderr
    assert sorted(map(int, lake.data().values())) == list(range(FILES))
    assert lake.open_uploads() == []
    record = f"__magic_job-{found.id}/_job.json"  # stays, closed: its driver might be alive
    assert lake.hidden() == ["_SUCCESS", record]
    assert mc.attach(lake.dest, found.id).state == "closed"

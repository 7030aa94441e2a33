"""Many processes, one job: start here, write in workers, commit with what they sent back.

    python -m examples.processes s3://bucket/table

The bucket is found as for every AWS tool: credentials, region and endpoint from the environment.
What works with `concurrent.futures` works with Ray, Dask or Airflow: a job pickles, a result is
JSON.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import magic_committer as mc

TASKS = 4


def work(job: mc.Job, number: int) -> str:
    """One task, in some process: its result as JSON. Raise, and nothing of it counts."""
    with job.task(number) as task, task.open(f"part-{number}.csv", "w", unique=True) as f:
        for row in range(1000):
            f.write(f"{number},{row}\n")
    return json.dumps(task.result.to_dict())


def main(dest: str) -> None:
    """Write ``dest`` from several processes, all or nothing."""
    job = mc.start(dest, accept="results", track="memory")
    try:
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
            results = list(workers.map(work, [job] * TASKS, range(TASKS)))
        report = job.commit([json.loads(result) for result in results])
    except mc.CommitIncomplete:
        raise  # committed, not all visible yet: commit again, never abort
    except BaseException:
        job.abort()
        raise
    print(f"{report.files} files, {report.bytes} bytes in {dest}, by job {report.job_id}")


if __name__ == "__main__":
    main(*sys.argv[1:])

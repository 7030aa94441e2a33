"""Write what this version leaves of a job: ``python -m tests.golden.ours``, once for a release."""

from __future__ import annotations

import json
import re
from pathlib import Path

import magic_committer as mc
from magic_committer.stores.memory import Request
from magic_committer.testing import memory_store
from tests.promises.hands import DEST, StillClock, control

HERE = Path(__file__).with_suffix("") / mc.__version__
RECORD = "t/__magic_job-j/_job.json"


def main() -> None:
    """Keep the objects of the job as they are at a Complete, and before the marker."""
    HERE.mkdir(parents=True)
    with memory_store(clock=StillClock()) as s3:

        def keep(state: str) -> None:
            body = re.sub(rb'"host":"[^"]*"', b'"host":"machine"', s3.body(RECORD))
            (HERE / f"record-{state}.json").write_bytes(body)

        def at(request: Request) -> None:
            if request.verb == "complete_upload":
                (plan,) = [key for key in control(s3) if "/_plan-" in key]
                (HERE / "plan.jsonl").write_bytes(s3.body(plan))
                keep("committing")
            elif request.verb == "put" and request.key == "t/_SUCCESS":
                keep("completed")

        s3.put_object("t/old.csv", b"old")
        job = mc.start(DEST, job_id="j", mode="replace", track="s3", accept="results")
        keep("running")
        with job.task("1") as task:
            task.write_bytes("a.csv", b"1,2")
        (HERE / "pendingset.json").write_bytes(s3.body(task.result.key))
        (HERE / "result.json").write_text(json.dumps(task.result.to_dict()))
        (HERE / "job.json").write_text(json.dumps(job.to_dict()))
        s3.before = at
        job.commit([task.result])


if __name__ == "__main__":
    main()

"""What operators' calls keep to where a schedule would need too many accidents at once."""

from __future__ import annotations

import magic_committer as mc
from magic_committer.stores.memory import Request
from magic_committer.testing import PatientClock, memory_store
from tests.promises.hands import DEST, committed_task, visible

TWO_DAYS = 2 * 86_400.0


def test_a_cleanup_that_stood_still_leaves_the_second_run_of_an_id_alone() -> None:
    """I6: a cleanup finds no record under a given id, which another one has just forgotten, and
    stands still until the id is in use again, for longer than any limit: it takes nothing."""
    clock = PatientClock()
    with memory_store(clock=clock) as store:
        mc.start(DEST, job_id="given").abort()
        clock.ahead += TWO_DAYS
        second: list[mc.Job] = []
        forgotten: list[mc.CleanupReport] = []

        def before(request: Request) -> None:
            if request.verb == "get" and not forgotten:
                store.before = None
                forgotten.append(mc.cleanup(DEST, forget_given_after=0))
                store.before = before
            elif request.verb == "list" and request.key.endswith("given/") and not second:
                store.before = None
                second.append(mc.start(DEST, job_id="given"))
                committed_task(second[0], "1", {"a.csv": b"1"})
                clock.ahead += TWO_DAYS

        store.before = before
        report = mc.cleanup(DEST)
        store.before = None
        assert forgotten[0].records_deleted == 1
        assert report.objects_deleted == report.uploads_aborted == 0
        second[0].commit()
        assert visible(store) == {"t/a.csv": b"1"}

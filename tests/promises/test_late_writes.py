"""I2: what a job sends is used up: a request that lands late brings no file back.

A file becomes visible by the Complete of its upload only, and each upload is completed once. A PUT
of the file, with whatever condition, would bring back a file that somebody has taken away since
(docs/decisions.md, "No file is published by a PUT").
"""

from __future__ import annotations

from contextlib import suppress

import pytest

import magic_committer as mc
from magic_committer.errors import StoreError
from magic_committer.hadoop.paths import Destination
from magic_committer.options import Mode, Track
from magic_committer.stores.memory import MemoryStore, Request
from magic_committer.testing import memory_store
from tests.promises.hands import DEST, Crash, committed_task, visible

FILES = {"p=1/a.csv": b"1", "p=1/empty.csv": b"", "p=2/b.csv": b"22"}
MODES: list[Mode] = ["append", "fail", "fail_partitions", "replace", "replace_partitions"]
TRACKS: list[Track] = ["memory", "s3"]


def requests_of_a_job(s3: MemoryStore, mode: Mode, track: Track) -> list[Request]:
    """Run a job of small files whose driver dies in its commit, recover it, and give every request
    that was sent."""
    sent: list[Request] = []
    dies = True

    def note(request: Request) -> None:
        sent.append(request)
        if dies and request.verb == "complete_upload" and "/p=2/" in request.key:
            raise Crash

    s3.before = note
    job = mc.start(DEST, mode=mode, track=track, accept="listing")
    committed_task(job, "1", FILES)
    with pytest.raises(Crash):
        job.commit()
    dies = False
    assert mc.recover(DEST, job.id).outcome == "committed"
    s3.before = None
    assert visible(s3) == {f"t/{name}": body for name, body in FILES.items()}
    return sent


@pytest.mark.parametrize("track", TRACKS)
@pytest.mark.parametrize("mode", MODES)
def test_no_file_is_published_by_a_put(s3: MemoryStore, mode: Mode, track: Track) -> None:
    """A job and its recovery PUT their own control objects and `_SUCCESS`, and never a file, also
    the smallest."""
    dest = Destination.parse(DEST)
    puts = {one.key for one in requests_of_a_job(s3, mode, track) if one.verb == "put"}
    assert dest.success_key in puts
    assert [key for key in puts if key != dest.success_key and "/__magic_job-" not in key] == []


@pytest.mark.parametrize("forgetful", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_no_late_request_brings_a_file_back(mode: Mode, forgetful: bool) -> None:
    """When a job is over and its files were taken away, every request of it may land once more, in
    any order: no file is visible again."""
    with memory_store(forgetful_complete=forgetful) as s3:
        sent = requests_of_a_job(s3, mode, "memory")
        s3.delete(list(visible(s3)))
        for request in (*sent, *reversed(sent)):
            with suppress(StoreError):
                request.effect()
            assert visible(s3) == {}
        completes = [one for one in sent if one.verb == "complete_upload"]
        assert {one.key for one in completes} >= {f"t/{name}" for name in FILES}

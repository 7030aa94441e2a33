"""The spool's uploads, as they are given to be completed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from magic_committer.commit import sets as loading
from magic_committer.commit.sets import (
    SPREAD_SETS,
    LoadedSet,
    ReadyUpload,
    Spool,
    Uploads,
    pack,
)


def spooled(spool: Spool, *sizes: int) -> list[LoadedSet]:
    accepted = []
    for task, files in enumerate(sizes):
        made = [ReadyUpload(f"t/{task}/{n}", "id", "token") for n in range(files)]
        packed = pack(made, {"counters": {f"task {task}": 1}})
        place = spool.append(packed), len(packed)
        key = f"{task}.pendingset"
        accepted.append(LoadedSet(key, "", str(task), "a", "u", 0.0, files, files, *place))
    spool.accepted = accepted
    return accepted


def directories(sets: Uploads) -> list[str]:
    return [upload.key.rpartition("/")[0] for uploads, _ in sets for upload in uploads]


def test_neighbours_are_of_different_tasks() -> None:
    """S3 limits the requests of each prefix, and the files of a task often share one."""
    with Spool() as spool:
        spooled(spool, *[10] * 20)
        found = directories(spool.uploads())
    assert Counter(found) == {f"t/{task}": 10 for task in range(20)}
    assert all(one != two for one, two in pairwise(found))


@pytest.mark.parametrize("sizes", [(), (1,), (3, 0, 5), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)])
def test_every_upload_and_every_statistic_is_given_once(sizes: tuple[int, ...]) -> None:
    """Sets of different sizes, empty ones too, are mixed, and nothing is lost or given twice."""
    with Spool() as spool:
        sets = spooled(spool, *sizes)
        keys = Counter(upload.key for uploads, _ in spool.uploads() for upload in uploads)
        told = Counter(name for _, said in spool.uploads() for name in said["counters"])
        named = [(one.key, one.upload_id, one.token) for one in spool.named()]
        assert named == [one[:3] for two in sets for one in spool.read(two)[0]]
        (last,) = spooled(spool, 1)  # behind what was read
        assert spool.read(last)[1] == {"counters": {"task 0": 1}}
    assert keys == {f"t/{task}/{n}": 1 for task, files in enumerate(sizes) for n in range(files)}
    assert told == {f"task {task}": 1 for task in range(len(sizes))}


def test_large_sets_are_unpacked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds one large set, or a few small ones."""
    read: list[int] = []
    real = Spool.read

    def noting(self: Spool, loaded: LoadedSet) -> Any:
        read.append(loaded.packed_bytes)
        return real(self, loaded)

    monkeypatch.setattr(Spool, "read", noting)
    with Spool() as spool:
        sets = spooled(spool, *[50] * 20, 100)
        monkeypatch.setattr(loading, "SPREAD_BYTES_MAX", sets[0].packed_bytes + 50)
        most = 0
        for _, _ in spool.uploads():
            most, read[:] = max(most, len(read)), []
    assert 1 < most <= SPREAD_SETS
    with Spool() as spool:
        sets = spooled(spool, *[50] * 5)
        monkeypatch.setattr(loading, "SPREAD_BYTES_MAX", 10)
        for _, _ in spool.uploads():
            assert len(read) == 1
            read.clear()

"""Drivers on real remote file systems, killed with SIGKILL at calls drawn by seed: another process
ends their job, and the destination holds all of it or none."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import magic_committer as mc
from magic_committer.stores.trees.dialects import tree_for
from tests.real_trees import drivers, kinds
from tests.real_trees.looking import control, data, is_marked
from tests.real_trees.test_jobs import write

SEED = 20261123
KILLS = 24 if kinds.all_wanted() else 4
"""Of each file system."""
KNOWN = {0: "task", 1: "decision"}
"""The first two are no draw: one before the decision, and one after it."""
OLD = {"dt=0/old.csv": b"old", "dt=1/part-1.csv": b"older"}
AFTER = {**OLD, **drivers.FILES}


@pytest.mark.on(*kinds.OTHER_PROCESSES)
def test_a_driver_killed_at_a_drawn_call_leaves_all_or_nothing(url: str) -> None:
    """Recovered by another process: the old data or the new, byte for byte; `_SUCCESS` exactly if
    it is the new; and after a cleanup nothing of the job."""
    write(f"{url}/whole", "append", OLD)
    count = drivers.counted(f"{url}/whole")
    assert data(f"{url}/whole") == AFTER
    chance, outcomes = random.Random(SEED), Counter[str]()
    for number in range(KILLS):
        place = f"{url}/{number}"
        write(place, "append", OLD)
        # The marker of the job before would hide that of this one.
        tree_for(place).remove("_SUCCESS")
        when = KNOWN.get(number) or chance.choice(["before", "after"])
        moment = chance.randint(1, count * 9 // 10)  # a run may make fewer calls
        told = f"seed {SEED}, {when} call {moment} of {count}"
        drivers.kill(place, moment, when)
        (outcome,) = [
            mc.recover(place, found.id, dead_after=0).outcome
            for found in mc.inspect(place)
            if found.kind == "ours" and found.state != "closed"
        ] or [""]
        outcomes[outcome] += 1
        found = data(place)
        if outcome:
            assert found == (AFTER if outcome == "committed" else OLD), (told, outcome)
        assert found in (OLD, AFTER), told
        assert is_marked(place) == (found == AFTER), told
        report = mc.cleanup(place, dead_after=0, leftover_after=0, forget_after=0)
        assert report.errors == (), told
        # What a killed put was writing goes with a listing, a day later (stores/tree.py).
        assert [one for one in control(place) if "/_new-" not in one] == [], told
    assert outcomes["committed"] >= 1, outcomes
    assert outcomes["aborted"] >= 1, outcomes


@pytest.mark.on(*kinds.OTHER_PROCESSES)
@pytest.mark.parametrize("reverts", [True, False])
def test_a_half_published_job_is_reverted_or_finished(url: str, reverts: bool) -> None:
    """A driver dies when it has renamed some files into place: the revert takes them back, and a
    recovery goes on."""
    write(url, "append", {"kept.csv": b"kept"})
    drivers.kill(url, 0, "rename")
    (job,) = [found for found in mc.inspect(url) if found.state != "closed"]
    assert job.state == "committing"
    assert data(url).keys() - {"kept.csv"}
    if reverts:
        assert mc.abort(url, job.id, revert=True).outcome == "reverted"
    else:
        assert mc.recover(url, job.id, dead_after=0).outcome == "committed"
    assert data(url) == {"kept.csv": b"kept"} | ({} if reverts else drivers.FILES)
    assert is_marked(url)

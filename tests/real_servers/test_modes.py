"""Every mode, on every server: what the store can keep is kept, and the rest is refused at once."""

from __future__ import annotations

from typing import get_args

import pytest

import magic_committer as mc
from magic_committer.options import FAILING, REPLACING, Mode
from tests.real_servers.conftest import SeenStore
from tests.real_servers.server import Server

CANNOT_FAIL = ("ceph",)
"""They ignore the condition on Complete (docs/stores.md)."""


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_job_of_each_mode(server: Server, store: SeenStore, mode: Mode) -> None:
    """New data comes, old data, in the job's partition and in another, stays or goes as the mode
    says; nothing else is left. Where a server cannot keep a mode, the job does not start."""
    old = {"t/dt=1/old.csv": b"old", "t/dt=2/other.csv": b"other"}
    if mode in FAILING:  # what is in the way is not there
        old = {} if mode == "fail" else {"t/dt=2/other.csv": b"other"}
    for key, body in old.items():
        store.put(key, body)
    job = store.write(mode=mode)
    if mode in FAILING and server.NAME in CANNOT_FAIL:
        with pytest.raises(mc.ConditionsNotSupported), job:
            pass
        assert store.visible() == old
        return
    with job, job.open("dt=1/new.csv") as file:
        file.write(b"new")
    assert (job.report.outcome, job.report.files) == ("committed", 1)
    if mode in REPLACING:
        old.pop("t/dt=1/old.csv")
    if mode == "replace":
        old.clear()
    assert store.visible() == {**old, "t/dt=1/new.csv": b"new"}


@pytest.mark.parametrize("mode", sorted(FAILING))
def test_a_failing_mode_writes_over_nothing(server: Server, store: SeenStore, mode: Mode) -> None:
    """Where somebody was faster the job raises, and theirs stays, alone."""
    if server.NAME in CANNOT_FAIL:
        return  # it does not start: `test_a_job_of_each_mode`
    late = store.write(mode=mode)
    with pytest.raises(mc.DestinationExists), late:
        for name in ("a.csv", "b.csv"):
            with late.open(f"dt=1/{name}") as file:
                file.write(b"ours")
        store.put("t/dt=1/b.csv", b"theirs")
    assert store.visible() == {"t/dt=1/b.csv": b"theirs"}


def test_without_conditions_a_job_works_everywhere(store: SeenStore) -> None:
    """`conditional_writes="off"` needs nothing of a store that S3A does not need."""
    with store.write(options=mc.Options(conditional_writes="off")) as job:
        for number in range(3):
            with job.open(f"{number}.csv") as file:
                file.write(b"%d" % number)
    assert job.report.outcome == "committed"
    assert store.visible() == {f"t/{number}.csv": b"%d" % number for number in range(3)}

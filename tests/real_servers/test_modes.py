"""Every mode, on every server: what the store can keep is kept, and the rest is refused at once."""

from __future__ import annotations

from typing import get_args

import pytest

import magic_committer as mc
from magic_committer.options import FAILING, REPLACING, Mode
from magic_committer.stores.s3 import S3Store
from tests.real_servers.server import Server, options
from tests.real_servers.visible import visible

CANNOT_FAIL = ("ceph",)
"""They ignore the condition on Complete (docs/stores.md)."""


def there_before(store: S3Store, mode: Mode) -> dict[str, bytes]:
    """Old data: in the job's partition, and in another; of the failing modes none is in the way."""
    old = {"t/dt=2/other.csv": b"other"}
    if mode not in FAILING:
        old["t/dt=1/old.csv"] = b"old"
    if mode == "fail":
        old = {}
    for key, body in old.items():
        store.put(key, body)
    return old


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_job_of_each_mode(server: Server, bucket: str, store: S3Store, mode: Mode) -> None:
    """New data comes, old data stays or goes as the mode says; nothing else is left. Where a server
    cannot keep a mode, the job does not start."""
    old = there_before(store, mode)
    job = mc.write(f"s3://{bucket}/t", mode=mode, s3=options(server.url))
    if mode in FAILING and server.NAME in CANNOT_FAIL:
        with pytest.raises(mc.ConditionsNotSupported), job:
            pass
        assert visible(store) == old
        return
    with job, job.open("dt=1/new.csv") as file:
        file.write(b"new")
    assert (job.report.outcome, job.report.files) == ("committed", 1)
    if mode in REPLACING:
        old.pop("t/dt=1/old.csv")
    if mode == "replace":
        old.clear()
    assert visible(store) == {**old, "t/dt=1/new.csv": b"new"}


@pytest.mark.parametrize("mode", sorted(FAILING))
def test_a_failing_mode_writes_over_nothing(
    server: Server, bucket: str, store: S3Store, mode: Mode
) -> None:
    """Where somebody was faster the job raises, and theirs stays, alone."""
    if server.NAME in CANNOT_FAIL:
        return  # it does not start: `test_a_job_of_each_mode`
    late = mc.write(f"s3://{bucket}/t", mode=mode, s3=options(server.url))
    with pytest.raises(mc.DestinationExists), late:
        for name in ("a.csv", "b.csv"):
            with late.open(f"dt=1/{name}") as file:
                file.write(b"ours")
        store.put("t/dt=1/b.csv", b"theirs")
    assert visible(store) == {"t/dt=1/b.csv": b"theirs"}


def test_without_conditions_a_job_works_everywhere(
    server: Server, bucket: str, store: S3Store
) -> None:
    """`conditional_writes="off"` needs nothing of a store that S3A does not need."""
    off = mc.Options(conditional_writes="off")
    with mc.write(f"s3://{bucket}/t", s3=options(server.url), options=off) as job:
        for number in range(3):
            with job.open(f"{number}.csv") as file:
                file.write(b"%d" % number)
    assert job.report.outcome == "committed"
    assert visible(store) == {f"t/{number}.csv": b"%d" % number for number in range(3)}

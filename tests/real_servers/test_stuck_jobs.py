"""Jobs that no way led out of, on versitygw, where they were seen."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import magic_committer as mc
from magic_committer.stores.base import objects, uploads
from tests.real_servers.conftest import SeenStore
from tests.real_servers.server import environment

LONG = "a" * 256

pytestmark = pytest.mark.only("versitygw")


def test_a_name_that_the_server_cannot_hold_is_refused_when_it_is_opened(store: SeenStore) -> None:
    """Its parts would be taken, and its Complete answered with 500 for ever."""
    job = mc.start(store.dest, s3=store.s3)
    for name in (LONG, f"{LONG}/x.csv", "a" * 248):  # the last: its `.pending` is too long
        with pytest.raises(mc.PathError, match="cannot hold"):
            job.task("1").open(name, unique=False)
    job.abort()


# Keys as paths: the way out is the printed one ----------------------------------------------------

IN_THE_WAY = pytest.mark.parametrize(("there", "name"), [("f", "f/x"), ("f/x", "f")])
"""What is there, and the file that cannot be: 409 for the first, 500 for the second, for ever."""


def stuck(store: SeenStore, there: str, name: str) -> mc.CommitIncomplete:
    """The error of a decided job that an object keeps from completing one of its two files."""
    store.put(f"t/{there}", b"there")
    job = mc.start(store.dest, s3=replace(store.s3, decided_seconds_max=6.0))
    with job.task("1") as task:
        for one in (name, "other.csv"):
            with task.open(one, unique=False) as f:
                f.write(b"ours")
    with pytest.raises(mc.CommitIncomplete) as caught:
        job.commit()
    assert caught.value.unresolved + caught.value.unfinished == (f"t/{name}",)
    return caught.value


def nothing_is_left(store: SeenStore, there: str, job_id: str) -> bool:
    """No file and no upload of the job, and nothing of its control but the closed record."""
    record = f"t/__magic_job-{job_id}/_job.json"
    keys = {one.key for one in objects(store, "")}
    return keys - {record} == {f"t/{there}"} and list(uploads(store, "")) == []


@IN_THE_WAY
def test_the_call_that_is_printed_undoes_the_job(
    url: str, store: SeenStore, monkeypatch: pytest.MonkeyPatch, there: str, name: str
) -> None:
    """Somebody pastes the last call of the message into Python: the job is reverted, what was there
    stays, and no upload is open."""
    error = stuck(store, there, name)
    (call,) = re.findall(r"undo the job[^:]*: (magic_committer\.abort\(.*\))$", str(error))
    for variable, value in environment(url).items():
        monkeypatch.setenv(variable, value)
    assert eval(call, {"magic_committer": mc}).outcome == "reverted"
    assert nothing_is_left(store, there, error.job_id)
    assert [job.state for job in mc.inspect(store.dest)] == ["closed"]

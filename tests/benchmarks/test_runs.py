"""Each kind of run that `make bench` makes of ours, and of a peer that is installed here: it is
whole, on both servers."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import plan, server
from benchmarks.measure import Machine, machine
from benchmarks.plan import Contender, Failed, Measurement
from benchmarks.server import Server
from benchmarks.writers import MiB


@pytest.fixture(params=["running", "fast"])
def on(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """What runs contenders, on each server; the peers are those of this environment."""
    if request.param == "fast" and shutil.which("go") is None:
        pytest.skip("there is no `go` on the PATH to build the fast server")
    with getattr(server, request.param)() as one, machine(one, Path(sys.executable)) as made:
        yield made


def measurement(name: str) -> Measurement:
    """One of the plan."""
    (found,) = [one for one in plan.plan() if f"{one.group}-{one.name}" == name]
    return found


def ours(one: Measurement) -> list[Contender]:
    """The contenders of ours: one for each transport."""
    return [c for c in one.contenders if c.home == "ours"]


def test_a_file_is_streamed(on: Machine) -> None:
    """Ours, by each transport, and the SDK's: one file, whole and of the right CRC32."""
    one = measurement("streaming-http")
    for contender in (*ours(one), *(c for c in one.contenders if c.name == "boto3")):
        run = on.run(one, contender, 36 * MiB, verify=True)
        assert run.requests["CompleteMultipartUpload"] == 1


@pytest.mark.parametrize(
    ("name", "amount", "verb", "many"),
    [
        ("commit-0ms", 120, "CompleteMultipartUpload", 120),
        ("small-files", 10, "CompleteMultipartUpload", 10),
        ("requests-job", 80, "CompleteMultipartUpload", 80),
    ],
)
def test_a_job_of_ours_is_measured(
    on: Machine, name: str, amount: int, verb: str, many: int
) -> None:
    """A commit completes each seeded upload once; small files and whole jobs are completed."""
    one = measurement(name)
    for contender in ours(one):
        assert on.run(one, contender, amount).requests[verb] == many


def test_bytes_that_are_missing_are_an_error(on: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file on the server that is shorter than what was to be written is no figure."""
    one = measurement("streaming-http")
    real = Server.facts

    def shorter(self: Server) -> dict[str, Any]:
        facts = real(self)
        for found in facts["objects"].values():
            found["size"] -= 1
        return facts

    monkeypatch.setattr(Server, "facts", shorter)
    with pytest.raises(Failed, match="wrote a file of 6291456 bytes"):
        on.run(one, ours(one)[0], 6 * MiB)

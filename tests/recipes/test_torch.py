"""The recipe for PyTorch: two ranks, processes of one group, save a checkpoint together; a rank
that fails or is killed leaves nothing of it. `make apart ONLY=recipes` installs PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.seen import Bucket
from tests.nightly import library
from tests.servers import moto_in_the_environment, moto_options, outside

library("torch")
pytestmark = pytest.mark.filterwarnings("default")  # PyTorch's own
ROOT = Path(__file__).resolve().parents[2]

RANK = """
import json, os, signal, sys
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from examples.recipes.with_torch import save
from tests.engines.seen import until_open

rank, how, meet, dest = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)

class Ends:
    "Some state of rank 1, which cannot be stored."
    def __reduce__(self):
        if how == "killed":
            until_open("killed/step-1/__1")
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("this cannot be stored")

mesh = init_device_mesh("cpu", (2,))
whole = torch.arange(3_000_000, dtype=torch.float32).reshape(-1, 3)  # more than a block a rank
state = {"weights": distribute_tensor(whole, mesh, [Shard(0)]), f"of-{rank}": torch.tensor([rank])}
if how != "well" and rank == 1:
    state["first"] = bytes(9_000_000)  # more than a block
    state["then"] = Ends()
said = save(state, dest)
print(json.dumps([said["outcome"], said["tasks"]]))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Bucket]:
    """A bucket, seen from outside. The environment says the way to it."""
    with moto_in_the_environment() as url:
        yield Bucket(outside(moto_options(url)))


def ranks(tmp_path: Path, how: str) -> list[tuple[int, str]]:
    """Run two ranks to their ends; exit code and last words of each."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    more = {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    words = [how, str(tmp_path / "meet"), f"s3://bucket/{how}/step-1"]
    both = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), *words],
            env={**os.environ, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        ends = [one.communicate(timeout=300) for one in both]
    finally:
        for one in both:
            one.kill()
    return [
        (one.returncode, (out if one.returncode == 0 else error).strip())
        for one, (out, error) in zip(both, ends, strict=True)
    ]


def test_the_files_of_all_ranks_are_one_checkpoint(server: Bucket, tmp_path: Path) -> None:
    """Each rank writes its part; PyTorch reads the whole, and each rank knows that it is there."""
    said = ranks(tmp_path, "well")
    assert [end[0] for end in said] == [0, 0], said
    assert [end[1].splitlines()[-1] for end in said] == ['["committed", 2]'] * 2
    assert server.open_uploads("well") == []
    there = tmp_path / "there"
    there.mkdir()
    for key in server.keys("well/step-1"):
        body = server.client.get_object(Bucket="bucket", Key=key)["Body"].read()
        there.joinpath(key.rpartition("/")[2]).write_bytes(body)
    assert {file.name for file in there.glob("*.distcp")} == {"__0_0.distcp", "__1_0.distcp"}
    reads = """
import sys, torch
import torch.distributed.checkpoint as dcp
state = {"weights": torch.zeros(1_000_000, 3), "of-0": torch.zeros(1), "of-1": torch.zeros(1)}
dcp.load(state, checkpoint_id=sys.argv[1], no_dist=True)
assert torch.equal(state["weights"].flatten(), torch.arange(3_000_000, dtype=torch.float32))
assert (state["of-0"].item(), state["of-1"].item()) == (0, 1)
"""
    ran = subprocess.run(
        [sys.executable, "-c", reads, str(there)], capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]


@pytest.mark.parametrize("how", ["fails", "killed"])
def test_a_rank_that_ends_publishes_nothing(server: Bucket, tmp_path: Path, how: str) -> None:
    """No rank returns from `save`, and nothing is visible, also after a SIGKILL."""
    said = ranks(tmp_path, how)
    assert all(code != 0 for code, _ in said), said
    if how == "fails":
        assert all("this cannot be stored" in told for _, told in said)
    assert server.left(how) == (server.open_uploads(how) if how == "killed" else [])
